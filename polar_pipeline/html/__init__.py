"""What all reports share: an HTML page without links to others, readable in light and dark, with charts as SVG."""
