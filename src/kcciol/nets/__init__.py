"""Networks: h_theta (`encoder`), g_W (`heads`), and where their parameters lie (`layout`)."""
