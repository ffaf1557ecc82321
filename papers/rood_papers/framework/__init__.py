"""What every paper shares: experiments, their networks and images, rows and the page."""
