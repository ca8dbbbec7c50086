"""Profiles: how the rate of an open loop changes over the measured phase.

Levels are multiples of the scenario's `rate`, so that one key scales the whole. The warm-up has the profile's
first level; where that is 0, nothing is sent in it.
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct, field

Level = Annotated[float, Meta(ge=0, le=1e6)]  # the engine's most
Seconds = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Segment = tuple[float, float, float]
"""Its length in seconds, the level at its beginning and that at its end."""

_MOST_BURSTS = 10_000


class Constant(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="constant"):
    """The rate as it is set."""


class Ramp(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="ramp"):
    """From one level evenly to the other."""

    from_: Level = field(name="from")
    to: Level


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="step"):
    """From one level to the other in so many levels, equally far apart and equally long."""

    from_: Level = field(name="from")
    to: Level
    steps: Annotated[int, Meta(ge=2, le=1000)]


class Spike(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="spike"):
    """Level 1, and once another one."""

    at_s: Seconds
    """When it begins, from the start of the measured phase."""
    length_s: Positive
    height: Level


class Burst(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="burst"):
    """Periods that begin at one level and end with a burst at another."""

    every_s: Positive
    """Length of a period."""
    length_s: Positive
    """Of this, length of the burst at its end."""
    height: Level
    base: Level = 1.0


Profile = Constant | Ramp | Step | Spike | Burst


def segments(profile: Profile, duration_s: float) -> list[Segment]:
    """What the profile is made of, in order and together as long as the measured phase."""
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
    """Return the integral of the levels over a time, in seconds; beyond the measured phase they are 0."""
    begin_s, total = 0.0, 0.0
    for length_s, first, last in segments(profile, duration_s):
        from_s, to_s = (min(max(time_s - begin_s, 0.0), length_s) for time_s in (start_s, end_s))
        slope = (last - first) / length_s
        total += (to_s - from_s) * (first + slope * (from_s + to_s) / 2)
        begin_s += length_s
    return total


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
    """What makes it unusable for a measured phase of `duration_s`, with the key; None when nothing does."""
    faults: list[tuple[bool, str]] = []
    match profile:
        case Spike(at_s=at_s, length_s=length_s):
            text = f"at_s: the spike ends at {at_s + length_s:g} s, and duration_s is {duration_s:g}"
            faults = [(at_s + length_s > duration_s, text)]
        case Burst(every_s=every_s, length_s=length_s):
            bursts = duration_s / every_s
            faults = [
                (length_s >= every_s, f"length_s: {length_s:g} is not less than every_s, {every_s:g}"),
                (every_s > duration_s, f"every_s: {every_s:g} is more than duration_s, {duration_s:g}"),
                (
                    bursts > _MOST_BURSTS,
                    f"every_s: {bursts:,.0f} bursts, at most {_MOST_BURSTS:,} are possible",
                ),
            ]
    fault = next((text for is_fault, text in faults if is_fault), None)
    if fault is not None:
        return f"profile.{fault}"
    if not any(start or end for _, start, end in segments(profile, duration_s)):
        return "profile: all its levels are 0, and nothing would be sent; one of them must be above 0"
    return None
