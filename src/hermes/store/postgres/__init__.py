"""The store on PostgreSQL, which many nodes share; imported only where it is configured."""
