// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

const smallSize = 8 << 20

// figure holds the reads of one row: one value for each round.
type figure struct {
	Name   string    `json:"name"`
	Delay  string    `json:"delay"`
	Unit   string    `json:"unit"` // "ms" or "GB/s"
	Direct []float64 `json:"direct"`
	Bare   []float64 `json:"bare"` // through a bare proxy
	Node   []float64 `json:"node"`
	// For each round, the value of the proxy and of the node, divided by the value of the upstream itself.
	BareRatios []float64 `json:"bare_ratios"`
	Ratios     []float64 `json:"ratios"`
}

// meter measures rounds.
type meter struct {
	o                     options
	direct, near, through *client
	node                  *node
	delay                 time.Duration
	rows                  []figure
}

// add adds the values of one round to a row.
func (m *meter) add(name, unit string, direct, bare, near float64) {
	i := slices.IndexFunc(m.rows, func(f figure) bool { return f.Name == name })
	if i < 0 {
		i = len(m.rows)
		m.rows = append(m.rows, figure{Name: name, Delay: m.delay.String(), Unit: unit})
	}
	f := &m.rows[i]
	f.Direct, f.Bare, f.Node = append(f.Direct, direct), append(f.Bare, bare), append(f.Node, near)
	f.BareRatios, f.Ratios = append(f.BareRatios, bare/direct), append(f.Ratios, near/direct)
}

// reads are the reads of one object: at the upstream itself, through the bare proxy, and at the node.
type reads struct{ direct, bare, near read }

// all reads an object in three ways, of which the given one is the first. The node must read from the upstream.
func (m *meter) all(ctx context.Context, key string, size int64, sum uint64, first int) (got reads, err error) {
	ways := []func() error{
		func() (err error) { got.direct, err = m.direct.get(ctx, key, size, sum); return err },
		func() (err error) { got.bare, err = m.through.get(ctx, key, size, sum); return err },
		func() (err error) {
			got.near, err = m.near.get(ctx, key, size, sum)
			if err == nil && got.near.from != "upstream" {
				err = fmt.Errorf("the node served %s by %q, expected a miss", key, got.near.from)
			}
			return err
		},
	}
	for i := range ways {
		if err := ways[(first+i)%len(ways)](); err != nil {
			return got, err
		}
	}
	return got, nil
}

// round measures one round of all rows.
func (m *meter) round(ctx context.Context, round int) error {
	data, sum := content(int64(round), m.o.size)
	for _, kind := range []struct {
		name string
		part int64
	}{{"in parts", m.o.part}, {"one PUT", m.o.size}} {
		key := fmt.Sprintf("large-%d-%s", round, kind.name[:3])
		if err := m.direct.put(ctx, key, data, kind.part); err != nil {
			return err
		}
		got, err := m.all(ctx, key, m.o.size, sum, round)
		if err != nil {
			return err
		}
		m.add("throughput, "+kind.name, "GB/s", rate(m.o.size, got.direct.whole), rate(m.o.size, got.bare.whole),
			rate(m.o.size, got.near.whole))
		m.add("first byte, large, "+kind.name, "ms", ms(got.direct.first), ms(got.bare.first), ms(got.near.first))
		if err := m.node.evict(key); err != nil {
			return err
		}
		if got, err := m.all(ctx, key, m.o.size, sum, round+1); err == nil { // the node may not keep what was just evicted
			m.add("first byte, evicted, "+kind.name, "ms", ms(got.direct.first), ms(got.bare.first), ms(got.near.first))
		}
		if err := m.drop(ctx, key); err != nil {
			return err
		}
	}
	return m.smallReads(ctx, round)
}

// smallReads measures the first bytes of several small objects, whose median counts.
func (m *meter) smallReads(ctx context.Context, round int) error {
	if m.o.small == 0 {
		return nil
	}
	var direct, bare, near []float64
	for i := range m.o.small {
		data, sum := content(int64(1000+100*round+i), smallSize)
		key := fmt.Sprintf("small-%d-%d", round, i)
		if err := m.direct.put(ctx, key, data, smallSize); err != nil {
			return err
		}
		got, err := m.all(ctx, key, smallSize, sum, round+i)
		if err != nil {
			return err
		}
		direct, bare = append(direct, ms(got.direct.first)), append(bare, ms(got.bare.first))
		near = append(near, ms(got.near.first))
		if err := m.drop(ctx, key); err != nil {
			return err
		}
	}
	m.add(fmt.Sprintf("first byte, median of %d objects of 8 MiB", m.o.small), "ms", median(direct), median(bare),
		median(near))
	return nil
}

// drop removes an object that is not needed any more.
func (m *meter) drop(ctx context.Context, key string) error {
	if _, _, err := m.direct.write(ctx, "DELETE", key, nil, nil); err != nil {
		return err
	}
	return m.node.evict(key)
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

func rate(n int64, d time.Duration) float64 { return float64(n) / d.Seconds() / 1e9 }

func median(values []float64) float64 {
	s := slices.Clone(values)
	slices.Sort(s)
	return (s[len(s)/2] + s[(len(s)-1)/2]) / 2
}

// table returns the rows as Markdown.
func table(rows []figure) string {
	var b strings.Builder
	b.WriteString("| read | delay | upstream itself | bare proxy | node, a miss | bare proxy divided by upstream | " +
		"node divided by upstream, median (least to most) |\n|---|---|---|---|---|---|---|\n")
	for _, f := range rows {
		fmt.Fprintf(&b, "| %s | %s | %.2f %s | %.2f %s | %.2f %s | %.2f (%.2f to %.2f) | **%.2f** (%.2f to %.2f) |\n", f.Name,
			f.Delay, median(f.Direct), f.Unit, median(f.Bare), f.Unit, median(f.Node), f.Unit, median(f.BareRatios),
			slices.Min(f.BareRatios), slices.Max(f.BareRatios), median(f.Ratios), slices.Min(f.Ratios), slices.Max(f.Ratios))
	}
	return b.String()
}

// thisMachine describes the machine.
func thisMachine() string {
	cpu := "unknown CPU"
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			cpu = strings.TrimSpace(value)
			break
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, %d cores, Linux %s", cpu, runtime.NumCPU(), strings.TrimSpace(string(kernel)))
}
