"""The routes: translate, call, translate."""
