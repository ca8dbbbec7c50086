"""The charts of reports: SVG, legible without scripts, with the values that the page's script shows."""
