"""What people see of a result: console, pages, charts, files."""
