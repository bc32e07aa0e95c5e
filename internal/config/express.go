// SPDX-License-Identifier: Apache-2.0

package config

import "time"

// S3Express holds the settings of directory buckets.
type S3Express struct {
	Enabled bool
	Zones   []string // zones of new directory buckets; empty means any zone
	Session time.Duration
}

// expressFields returns the keys of directory buckets.
func expressFields() []field {
	return []field{
		{Key: Key{Name: "s3_express.enabled", Type: Bool, Default: "false",
			Help: "Serve directory buckets as in Amazon S3 Express One Zone. The name of a directory bucket has the " +
				"form NAME--ZONE--x-s3."},
			bind: func(c *Config) any { return &c.S3Express.Enabled }},
		{Key: Key{Name: "s3_express.zones", Type: List,
			Help: "Zones that the names of new directory buckets may contain, such as `use1-az4`. If s3_express.zones is " +
				"not set, any zone is accepted."},
			bind: func(c *Config) any { return &c.S3Express.Zones }, check: zone},
		{Key: Key{Name: "s3_express.session_duration", Type: Duration, Default: "5m", Min: int64(time.Second),
			Max: int64(time.Hour),
			Help: "Time for which a session of a directory bucket is valid. A permission that is taken away counts for " +
				"the sessions that begin later."},
			bind: func(c *Config) any { return &c.S3Express.Session }},
	}
}

// zone checks the name of a zone.
func zone(text string) string {
	if len(text) < 1 || len(text) > 32 {
		return "is no zone; expected 1 to 32 characters, such as use1-az4"
	}
	for i := range len(text) {
		c := text[i]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		inner := c == '-' && i > 0 && i < len(text)-1 && text[i-1] != '-'
		if !letter && !inner {
			return "is no zone; expected lower-case letters and digits with single hyphens between them, such as use1-az4"
		}
	}
	return ""
}

// expressNotes returns the notes on settings of directory buckets that have no effect.
func (c *Config) expressNotes() []string {
	var all []string
	for _, name := range []string{"s3_express.zones", "s3_express.session_duration"} {
		if !c.S3Express.Enabled && c.Source(name).Origin != FromDefault {
			all = append(all, name+" is set and has no effect, because s3_express.enabled is false")
		}
	}
	return all
}
