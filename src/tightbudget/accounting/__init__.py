"""What has been spent, what would be, how much noise is enough?"""
