"""What does an observed output cost?"""
