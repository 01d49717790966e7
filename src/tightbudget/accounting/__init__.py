"""Questions about whole compositions: how much noise is enough, and how do bounds compare?"""
