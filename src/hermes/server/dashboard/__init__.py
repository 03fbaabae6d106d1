"""The dashboard: pages for the browser, who is signed in, and the feed of live sessions."""
