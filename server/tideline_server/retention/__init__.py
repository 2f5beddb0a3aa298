"""What outlives its use: the folder of the audit log's archive, and how much everything takes."""
