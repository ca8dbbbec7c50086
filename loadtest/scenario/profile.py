"""Profiles: changes of an open loop's rate over the measured phase.

Levels are multiples of the scenario's `rate`, so that this one key scales the whole profile. The warm-up has
the profile's first level; if that is 0, the warm-up sends nothing.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Annotated

from msgspec import Meta, Struct, field

Level = Annotated[float, Meta(ge=0, le=1e6)]  # the engine's upper limit
Seconds = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Segment = tuple[float, float, float]
"""Part of a profile: length in seconds, level at the beginning, level at the end; linear in between."""

_MAX_BURSTS = 10_000


class Constant(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="constant"):
    """Profile with level 1 all the time."""


class Ramp(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="ramp"):
    """Profile that changes linearly from one level to another."""

    from_: Annotated[Level, Meta(description="Level at the beginning.")] = field(name="from")
    to: Annotated[Level, Meta(description="Level at the end.")]


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="step"):
    """Profile that goes from one level to another in steps of equal height and length."""

    from_: Annotated[Level, Meta(description="First level.")] = field(name="from")
    to: Annotated[Level, Meta(description="Last level.")]
    steps: Annotated[int, Meta(ge=2, le=1000, description="Number of levels, both ends included.")]


class Spike(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="spike"):
    """Profile with level 1, except for one spike."""

    at_s: Annotated[Seconds, Meta(description="Beginning, seconds from the start of the measured phase.")]
    length_s: Annotated[Positive, Meta(description="Length, seconds.")]
    height: Annotated[Level, Meta(description="Level of the spike.")]


class Burst(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="burst"):
    """Profile of equal periods, each with a burst at its end."""

    every_s: Annotated[Positive, Meta(description="Length of a period, seconds.")]
    length_s: Annotated[Positive, Meta(description="Length of the burst at the end of a period, seconds.")]
    height: Annotated[Level, Meta(description="Level of the burst.")]
    base: Annotated[Level, Meta(description="Level between bursts.")] = 1.0


Profile = Constant | Ramp | Step | Spike | Burst


def segments(profile: Profile, duration_s: float) -> list[Segment]:
    """Return the segments of a profile in order; their lengths add up to the measured phase."""
    match profile:
        case Ramp():
            return [(duration_s, profile.from_, profile.to)]
        case Step(from_=first, to=last, steps=steps):
            levels = [first + (last - first) * index / (steps - 1) for index in range(steps)]
            return [(duration_s / steps, level, level) for level in levels]
        case Spike(at_s=at_s, length_s=length_s, height=height):
            after_s = duration_s - at_s - length_s
            return _flat([(at_s, 1.0), (length_s, height), (after_s, 1.0)])
        case Burst():
            return _bursts(profile, duration_s)
    return [(duration_s, 1.0, 1.0)]


def area(profile: Profile, duration_s: float, start_s: float, end_s: float) -> float:
    """Return the integral of the level between two times, in seconds; outside the measured phase it is 0."""
    return _area_until(profile, duration_s, end_s) - _area_until(profile, duration_s, start_s)


def _area_until(profile: Profile, duration_s: float, time_s: float) -> float:
    begins, areas, parts = _cumulated(profile, duration_s)
    at = max(bisect_right(begins, time_s) - 1, 0)
    length_s, first, last = parts[at]
    passed_s = min(max(time_s - begins[at], 0.0), length_s)
    return areas[at] + passed_s * (first + (last - first) / length_s * passed_s / 2)


# A chart asks for each second of a run, and a profile may have thousands of segments.
@lru_cache(maxsize=8)
def _cumulated(profile: Profile, duration_s: float) -> tuple[list[float], list[float], list[Segment]]:
    """Return the segments, with the time and the integral at the beginning of each."""
    parts = segments(profile, duration_s)
    begins = list(accumulate((length_s for length_s, _, _ in parts[:-1]), initial=0.0))
    areas = (length_s * (first + last) / 2 for length_s, first, last in parts[:-1])
    return begins, list(accumulate(areas, initial=0.0)), parts


def _bursts(burst: Burst, duration_s: float) -> list[Segment]:
    parts: list[tuple[float, float]] = []
    begin_s = 0.0
    while begin_s < duration_s:
        left_s = duration_s - begin_s
        quiet_s = min(burst.every_s - burst.length_s, left_s)
        parts += [(quiet_s, burst.base), (min(burst.length_s, left_s - quiet_s), burst.height)]
        begin_s = len(parts) / 2 * burst.every_s
    return _flat(parts)


def _flat(parts: Sequence[tuple[float, float]]) -> list[Segment]:
    return [(length_s, level, level) for length_s, level in parts if length_s > 0]


def find_fault(profile: Profile, duration_s: float) -> str | None:
    """Return why a profile cannot be used with a measured phase of `duration_s`, naming the key, or None."""
    faults: list[tuple[bool, str]] = []
    match profile:
        case Spike(at_s=at_s, length_s=length_s):
            text = f"at_s: the spike ends at {at_s + length_s:g} s, but duration_s is {duration_s:g}"
            faults = [(at_s + length_s > duration_s, text)]
        case Burst(every_s=every_s, length_s=length_s):
            bursts = duration_s / every_s
            faults = [
                (length_s >= every_s, f"length_s: {length_s:g} is not shorter than every_s, {every_s:g}"),
                (every_s > duration_s, f"every_s: {every_s:g} is longer than duration_s, {duration_s:g}"),
                (
                    bursts > _MAX_BURSTS,
                    f"every_s: makes {bursts:,.0f} bursts, but at most {_MAX_BURSTS:,} are possible",
                ),
            ]
    fault = next((text for is_fault, text in faults if is_fault), None)
    if fault is not None:
        return f"profile.{fault}"
    if not any(start or end for _, start, end in segments(profile, duration_s)):
        return "profile: all levels are 0, so nothing would be sent; set one of them above 0"
    return None
