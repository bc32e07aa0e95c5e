// SPDX-License-Identifier: Apache-2.0

package config

// consoleFields returns the keys of the web console.
func consoleFields() []field {
	return []field{
		{Key: Key{Name: "console.enabled", Type: Bool, Default: "true",
			Help: "Serve the web console under /console/ of the console address. Without the web console, the console " +
				"address serves only health checks, readiness checks and metrics."},
			bind: func(c *Config) any { return &c.Console.Enabled }},
		{Key: Key{Name: "console.allow_plain_http", Type: Bool, Default: "false",
			Help: "Let users log in to the web console over plain HTTP even if other machines can reach the console " +
				"address. Anybody on the network path can then read access keys and sessions."},
			bind: func(c *Config) any { return &c.Console.AllowPlainHTTP }},
		{Key: Key{Name: "console.hosts", Type: List,
			Help: "Host names under which browsers may reach the web console over plain HTTP, for example those of a " +
				"proxy. IP addresses, localhost and the name of this machine are always accepted. With TLS, every " +
				"name is accepted."},
			bind: func(c *Config) any { return &c.Console.Hosts }, check: hostName},
		{Key: Key{Name: "console.benchmarks", Type: Text,
			Help: "Directory with result files of `nebulaio bench --out`, which the web console shows. If " +
				"console.benchmarks is not set, the web console shows no benchmarks."},
			bind: func(c *Config) any { return &c.Console.Benchmarks }},
	}
}
