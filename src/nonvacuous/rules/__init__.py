"""What whoever makes a certificate and whoever verifies one must do alike."""
