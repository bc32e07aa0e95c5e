// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// DefaultGossipPort is the port of a seed without a port.
const DefaultGossipPort = 7946

// mostSeedAddresses bounds the addresses that one name may stand for.
const mostSeedAddresses = 1024

// resolveTime is the largest time of one look at the DNS.
const resolveTime = 5 * time.Second

// ParseSeed returns the host and the port of a seed, which is HOST or HOST:PORT. An IPv6 address with a port has
// brackets.
func ParseSeed(seed string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(seed)
	if err != nil {
		// Without a port: a name, an IPv4 address or a bare IPv6 address.
		host, port = seed, strconv.Itoa(DefaultGossipPort)
		if net.ParseIP(seed) == nil && !isHostName(seed) {
			return "", "", badSeed(seed)
		}
		return host, port, nil
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
		return "", "", badSeed(seed)
	}
	return host, port, nil
}

func badSeed(seed string) error {
	return errs.New(errs.Invalid, "read", "seed "+strconv.Quote(seed), "is no address; expected HOST or HOST:PORT")
}

func isHostName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_' {
			return false
		}
	}
	return true
}

// rejoin looks at the seeds and at lost members until ctx ends, so that nodes find each other in any order of their
// starts, and parts of a cluster find each other after a network failure.
func (n *Node) rejoin(ctx context.Context) {
	for {
		n.join(ctx)
		n.peers.forget(func(name string) bool { return !n.members.knows(name) })
		wait := n.o.Limits.Rejoin
		if len(n.members.all()) < 2 {
			wait = min(wait, time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// join contacts each seed and each lost member that is not a live member.
func (n *Node) join(ctx context.Context) {
	live := map[string]bool{}
	for _, m := range n.members.all() {
		live[m.Gossip] = true
	}
	for address := range n.candidates(ctx) {
		if ctx.Err() != nil {
			return
		}
		if live[address] {
			continue
		}
		if _, err := n.list.Join([]string{address}); err != nil {
			n.o.Log.Debug("a seed or lost member does not answer", "address", address, "error", err)
		}
	}
}

// candidates returns the gossip addresses of all seeds and lost members.
func (n *Node) candidates(ctx context.Context) map[string]bool {
	all := map[string]bool{}
	for _, seed := range n.o.Seeds {
		host, port, err := ParseSeed(seed)
		if err != nil {
			continue // cannot be: Start has checked the seeds
		}
		ips, err := lookup(ctx, host)
		if err != nil {
			n.o.Log.Debug("the address of a seed is not known", "seed", seed, "error", err)
			continue
		}
		for _, ip := range ips[:min(len(ips), mostSeedAddresses)] {
			all[net.JoinHostPort(ip.String(), port)] = true
		}
	}
	for _, m := range n.members.gone(time.Now()) {
		all[m.Gossip] = true
	}
	return all
}
