"""What a site says beside its replies: when it worked on them, and what its owner lets be told of policy and data."""
