"""What both ends know of a provider of identities (OpenID Connect): how it is asked, and what it says of itself."""
