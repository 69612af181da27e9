"""Common parts of reports: an HTML page without links to others, in light and dark, with charts as SVG."""
