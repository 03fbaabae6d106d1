"""How platforms reach services by HTTP, and how services reach them."""
