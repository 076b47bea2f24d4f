"""What is handed out: the wheel, the one-file archive and the image."""
