// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// Cluster holds the settings of a node that shares its cached objects with other nodes.
type Cluster struct {
	Name          string   // name of this node; empty means the host name
	Address       string   // HOST:PORT for other members; empty means that this node is in no cluster
	GossipAddress string   // HOST:PORT of the gossip; empty means the host of Address with the default port
	Advertise     string   // IP address or name under which other members reach this node
	Seeds         []string // HOST[:PORT] of the gossip of other members
	KeyFile       string   // file with the secret key of the cluster
	Zone          string
	Weight        int
}

// GossipPort is the default port of the gossip between members of a cluster.
const GossipPort = 7946

// Enabled reports whether the server is a member of a cluster.
func (c Cluster) Enabled() bool { return c.Address != "" }

// NodeName returns the name of this node in the cluster.
func (c Cluster) NodeName() (string, error) {
	if c.Name != "" {
		return c.Name, nil
	}
	return os.Hostname()
}

// Gossip returns the HOST:PORT on which this node gossips.
func (c Cluster) Gossip() string {
	if c.GossipAddress != "" {
		return c.GossipAddress
	}
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		return "" // Load accepts only addresses
	}
	return net.JoinHostPort(host, fmt.Sprint(GossipPort))
}

// clusterFields returns the keys of the cluster.
func clusterFields() []field {
	return []field{
		{Key: Key{Name: "cluster.name", Type: Text,
			Help: "Name of this node in its cluster, which no other node of the cluster may have. If " +
				"cluster.name is not set, the host name of the machine is used."},
			bind: func(c *Config) any { return &c.Cluster.Name }, check: memberName},
		{Key: Key{Name: "cluster.address", Type: Text,
			Help: "HOST:PORT on which this node gives cached objects to other nodes of its cluster. If " +
				"cluster.address is not set, the node is in no cluster. Connections to cluster.address use TLS " +
				"with a key pair that derives from the cluster key."},
			bind: func(c *Config) any { return &c.Cluster.Address }, check: optional(hostPort)},
		{Key: Key{Name: "cluster.gossip_address", Type: Text,
			Help: "HOST:PORT on which this node exchanges the list of members with other nodes, over UDP and " +
				"TCP. If cluster.gossip_address is not set, the host of cluster.address and the port 7946 are used."},
			bind: func(c *Config) any { return &c.Cluster.GossipAddress }, check: optional(hostPort)},
		{Key: Key{Name: "cluster.advertise", Type: Text,
			Help: "IP address or host name under which other nodes reach this node. If cluster.advertise is " +
				"not set, the host of cluster.gossip_address is used, or a private address of the machine if " +
				"that host is empty."},
			bind: func(c *Config) any { return &c.Cluster.Advertise }, check: hostName},
		{Key: Key{Name: "cluster.seeds", Type: List,
			Help: "HOST or HOST:PORT of the gossip of some nodes of the cluster. A seed may be a DNS name with " +
				"many addresses, such as a headless service of Kubernetes; the node resolves the name again " +
				"and again. The list may contain the node itself."},
			bind: func(c *Config) any { return &c.Cluster.Seeds }, check: seedAddress},
		{Key: Key{Name: "cluster.key_file", Type: Text,
			Help: "File with the secret key that all nodes of the cluster share: 32 random bytes in base64, " +
				"which nebulaio cluster key makes. The file must not be readable for all users of the machine."},
			bind: func(c *Config) any { return &c.Cluster.KeyFile }},
		{Key: Key{Name: "cluster.zone", Type: Text,
			Help: "Zone of this node, such as a rack or an availability zone. Nodes share cached objects only " +
				"with nodes of their own zone."},
			bind: func(c *Config) any { return &c.Cluster.Zone }, check: zoneName},
		{Key: Key{Name: "cluster.weight", Type: Number, Default: "100", Min: 0, Max: 1_000_000,
			Help: "Share of the cluster's objects for which this node is responsible, relative to the weights " +
				"of the other nodes. A good cluster.weight is the size of the node's cache in GB. A node with " +
				"the weight 0 fetches from other nodes and gives nothing."},
			bind: func(c *Config) any { return &c.Cluster.Weight }},
	}
}

// checkCluster checks settings of the cluster that depend on each other.
func (c *Config) checkCluster(bad func(name, msg, fix string) error) error {
	k := &c.Cluster
	if !k.Enabled() {
		for name, isSet := range map[string]bool{"cluster.seeds": len(k.Seeds) > 0, "cluster.key_file": k.KeyFile != "",
			"cluster.gossip_address": k.GossipAddress != "", "cluster.advertise": k.Advertise != ""} {
			if isSet {
				return bad(name, "is set and cluster.address is not", "set cluster.address, such as :9002")
			}
		}
		return nil
	}
	if k.KeyFile == "" {
		return bad("cluster.address", "is set and cluster.key_file is not", "make a key: nebulaio cluster key --out FILE")
	}
	_, port, _ := net.SplitHostPort(k.Address)
	switch {
	case port != "0" && (k.Address == c.Address || k.Address == c.ConsoleAddress):
		return bad("cluster.address", fmt.Sprintf("is %q, which is the S3 address or the console address too", k.Address),
			"give it another port")
	case port != "0" && k.Gossip() == k.Address:
		return bad("cluster.address", fmt.Sprintf("is %q, which is the gossip address too", k.Address),
			"give it another port")
	}
	return nil
}

// optional accepts an empty text, and any other text that check accepts.
func optional(check func(string) string) func(string) string {
	return func(s string) string {
		if s == "" {
			return ""
		}
		return check(s)
	}
}

func memberName(s string) string {
	if len(s) > 128 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "is no name of a node; expected at most 128 letters, digits and signs without spaces"
	}
	return ""
}

func zoneName(s string) string {
	if len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "is no zone; expected at most 64 letters, digits and signs without spaces"
	}
	return ""
}

func seedAddress(s string) string {
	if why := hostName(s); why != "" || s == "" {
		return "is no seed; expected HOST or HOST:PORT"
	}
	if strings.Count(s, ":") == 1 { // else a name, or an IPv6 address without a port
		if why := hostPort(s); why != "" || strings.HasSuffix(s, ":0") || s[0] == ':' {
			return "is no seed; expected HOST or HOST:PORT"
		}
	}
	return ""
}
