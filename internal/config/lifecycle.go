// SPDX-License-Identifier: Apache-2.0

package config

// Lifecycle holds the settings of the worker that applies the lifecycle rules of buckets.
type Lifecycle struct {
	Enabled bool
	Rate    int // largest number of removals per second; 0 means no limit
}

// lifecycleFields returns the keys of the lifecycle worker.
func lifecycleFields() []field {
	return []field{
		{Key: Key{Name: "lifecycle.enabled", Type: Bool, Default: "true",
			Help: "Apply the lifecycle rules of buckets in the background. If lifecycle.enabled is false, rules are stored " +
				"and nothing is removed; the command nebulaio lifecycle run still works."},
			bind: func(c *Config) any { return &c.Lifecycle.Enabled }},
		{Key: Key{Name: "lifecycle.rate", Type: Number, Default: "1000", Min: 0, Max: 1_000_000,
			Help: "Largest number of versions, delete markers and multipart uploads per second that lifecycle rules " +
				"remove; 0 means no limit."},
			bind: func(c *Config) any { return &c.Lifecycle.Rate }},
	}
}
