"""What a run can be aimed at: installed and provisioned engines, and runs over many of them."""
