"""What scorings tell beside the accuracy, and scorings of methods that predict in a way of their own."""
