"""Does a migrated script train like the original? Run both under a recorder and compare what they did."""
