// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// mostInterfaces bounds the network interfaces that are read. A host of many containers has thousands.
const mostInterfaces = 4096

// parseNetDev parses /proc/net/dev. Its two header lines and lines with fewer than 16 columns are skipped.
func parseNetDev(b []byte) (out []Network) {
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		var n [16]uint64
		if !ok || counts(rest, n[:]) < len(n) || len(out) >= mostInterfaces {
			continue
		}
		out = append(out, Network{Name: string(bytes.TrimSpace(name)), Received: n[0], Errors: n[2] + n[10],
			Dropped: n[3] + n[11], Sent: n[8]})
	}
	return out
}

// since computes the rates of the interface from its counters before.
func (n *Network) since(before Network, seconds float64) {
	if seconds <= 0 {
		return
	}
	n.ReceiveRate, n.SendRate = per(n.Received, before.Received, seconds), per(n.Sent, before.Sent, seconds)
	n.DropRate, n.ErrorRate = per(n.Dropped, before.Dropped, seconds), per(n.Errors, before.Errors, seconds)
	n.OfSpeed = part(max(n.ReceiveRate, n.SendRate), n.Speed)
}

// nic is what seldom changes about an interface.
type nic struct {
	up, virtual bool
	speed       float64
}

func (c *Collector) readNetworks(s *Sample) {
	s.Networks = []Network{}
	b, err := c.files.read("/proc/net/dev")
	if err != nil {
		s.miss("network", err)
		return
	}
	all := parseNetDev(b)
	if c.nics == nil || c.reads%shapeEvery == 0 || slices.ContainsFunc(all, func(n Network) bool {
		_, ok := c.nics[n.Name]
		return !ok
	}) {
		c.nics = map[string]nic{}
		for _, n := range all {
			c.nics[n.Name] = c.readNIC(n.Name)
		}
	}
	before := c.networks
	c.networks = map[string]Network{}
	for _, n := range append(all, c.readRDMA()...) {
		if !n.RDMA {
			is := c.nics[n.Name]
			n.Up, n.Virtual, n.Speed = is.up, is.virtual, is.speed
		}
		if !n.Up && n.Received+n.Sent == 0 {
			continue
		}
		if old, ok := before[n.Name]; ok {
			n.since(old, s.Seconds)
		}
		c.networks[n.Name] = n
		s.Networks = append(s.Networks, n)
	}
	slices.SortFunc(s.Networks, func(a, b Network) int { return strings.Compare(a.Name, b.Name) })
	c.readTCP(s)
}

func (c *Collector) readNIC(name string) nic {
	dir := "/sys/class/net/" + name
	state := c.files.text(dir + "/operstate")
	is := nic{up: state == "up" || state == "unknown", // lo and tunnels have no state
		virtual: strings.Contains(c.files.link(dir), "/virtual/")}
	if mbit, err := strconv.ParseInt(c.files.text(dir+"/speed"), 10, 32); err == nil && mbit > 0 {
		is.speed = float64(mbit) * 1e6 / 8
	}
	return is
}

// readRDMA reads the counters of the RDMA ports, whose traffic the network interfaces do not see.
func (c *Collector) readRDMA() (out []Network) {
	devices, err := c.files.names("/sys/class/infiniband")
	if err != nil {
		return nil // most machines have none
	}
	for _, dev := range devices {
		ports, _ := c.files.names("/sys/class/infiniband/" + dev + "/ports")
		for _, port := range ports {
			dir := "/sys/class/infiniband/" + dev + "/ports/" + port
			got, ok1 := c.files.number(dir + "/counters/port_rcv_data")
			sent, ok2 := c.files.number(dir + "/counters/port_xmit_data")
			if !ok1 || !ok2 || got > 1<<61 || sent > 1<<61 || len(out) >= 256 {
				continue
			}
			n := Network{Name: dev + "/" + port, RDMA: true, Received: got * 4, Sent: sent * 4, // counted in words
				Up: strings.Contains(c.files.text(dir+"/state"), "ACTIVE"), Speed: linkRate(c.files.text(dir + "/rate"))}
			n.Errors, _ = c.files.number(dir + "/counters/symbol_error")
			n.Dropped, _ = c.files.number(dir + "/counters/port_xmit_discards")
			out = append(out, n)
		}
	}
	return out
}

// linkRate parses the rate of an RDMA port, such as "400 Gb/sec (4X NDR)", into bytes per second. It returns 0 for
// anything else.
func linkRate(text string) float64 {
	number, _, ok := strings.Cut(text, " Gb/sec")
	gbit, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(gbit > 0) || gbit > 1e5 {
		return 0
	}
	return gbit * 1e9 / 8
}

// parseSNMP returns the sent and the repeated TCP segments of /proc/net/snmp. A line of names is followed by a line of
// values. It returns false if the TCP lines are missing.
func parseSNMP(b []byte) (sent, again uint64, ok bool) {
	var names [][]byte
	for line := range bytes.Lines(b) {
		w := bytes.Fields(line)
		if len(w) < 2 || string(w[0]) != "Tcp:" {
			continue
		}
		if names == nil {
			names = w
			continue
		}
		found := 0
		for i := range min(len(names), len(w)) {
			n, isCount := parseCount(w[i])
			switch string(names[i]) {
			case "OutSegs":
				sent = n
			case "RetransSegs":
				again = n
			default:
				continue
			}
			if isCount {
				found++
			}
		}
		return sent, again, found == 2
	}
	return 0, 0, false
}

func (c *Collector) readTCP(s *Sample) {
	b, err := c.files.read("/proc/net/snmp")
	if err != nil {
		s.miss("tcp", err)
		return
	}
	sent, again, ok := parseSNMP(b)
	if !ok {
		s.missText("tcp", "/proc/net/snmp has no TCP counters", "")
		return
	}
	s.TCP = TCP{SentSegments: sent, Retransmits: again}
	if s.Seconds > 0 && c.tcp != (TCP{}) {
		s.TCP.RetransmitRate = per(again, c.tcp.Retransmits, s.Seconds)
		s.TCP.RetransmitShare = part(float64(grown(again, c.tcp.Retransmits)), float64(grown(sent, c.tcp.SentSegments)))
	}
	c.tcp = TCP{SentSegments: sent, Retransmits: again}
}
