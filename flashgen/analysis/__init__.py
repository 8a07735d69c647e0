"""Questions about a module: linear forms, dependences, index ranges. Nothing here changes a module."""
