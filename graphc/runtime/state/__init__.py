"""The values of variables: initial values, live state, and the state that users see."""
