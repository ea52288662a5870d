"""Dead letters as Spark reads them."""
