// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
)

// share compares the run with the slowest limit on its way. It also describes how much the page cache contributed to
// the rate.
func (m *measure) share() {
	r := &m.out
	r.Cache.Verdict, r.Cache.Why = verdict(r.Settings.Op, r.Settings.Sync, r.Routes)
	if m.Spec.Op == Write && m.Set.Files()[0].FS().Memory {
		// A sync there returns at once: nothing reached a disk.
		r.Cache.Verdict, r.Cache.Why = "memory", "the file system keeps its files in memory: this says nothing about storage"
	}
	if r.Bytes == 0 {
		return
	}
	var way []record.Limit
	ok := true
	add := func(l record.Limit, found bool) {
		if ok = ok && found; found {
			way = append(way, l)
		}
	}
	add(m.sourceLimit())
	if m.Spec.Memory != Host {
		add(m.busLimit())
	}
	if !ok || len(way) == 0 {
		return
	}
	least := way[0]
	for _, l := range way[1:] {
		if l.GBps < least.GBps {
			least = l
		}
	}
	if least.GBps > 0 {
		r.Share = &record.Share{Of: least.ID, Name: least.Name, Ceiling: least.GBps, Ratio: r.GBps / least.GBps,
			Spread: least.Spread()}
	}
	if r.Share != nil && r.Share.Ratio > 1+max(beyond, r.Share.Spread) {
		r.Notes = append(r.Notes, "this run is faster than the stored limit: measure the limit again (nebulaio bench "+
			"ceilings DIR)")
	}
}

// beyond is how far a share may exceed 1 before the limit itself is doubted. A limit whose rounds spread further has
// its spread as tolerance instead.
const beyond = 0.1

// verdict returns what a rate measured (storage, memory or both) and why.
func verdict(op string, synced bool, routes []record.Route) (what, why string) {
	if op == string(Write) {
		if synced {
			return "storage", "the time includes the sync"
		}
		return "both", "nothing was synced: data may still be in memory"
	}
	var cached, fetched, unknown int64
	for _, t := range routes {
		switch t.Route {
		case "page_cache":
			cached += t.Bytes
		case "unknown", "direct_unproven", "buffered_unproven":
			unknown += t.Bytes
		default:
			fetched += t.Bytes
		}
	}
	all := float64(max(cached+fetched+unknown, 1))
	switch {
	case unknown > 0:
		return "both", "where the bytes came from is not known"
	case float64(fetched)/all >= 0.99:
		return "storage", "the bytes came from storage"
	case float64(cached)/all >= 0.99:
		return "memory", "the bytes were in the page cache: this says nothing about storage"
	}
	return "both", fmt.Sprintf("%.0f %% of the bytes were in the page cache", 100*float64(cached)/all)
}

// sourceLimit returns the limit of the source or the destination in storage. Bytes that came partly from memory have
// a limit between those of storage and memory.
func (m *measure) sourceLimit() (record.Limit, bool) {
	c := m.Ceilings
	if m.Spec.Op == Write {
		if m.Spec.NoSync && m.meter.route == Buffered {
			return c.Find(record.MemoryCopy, "host")
		}
		return m.striped(record.StorageWrite)
	}
	var cached int64
	for _, t := range m.out.Routes {
		switch t.Route {
		case "page_cache":
			cached += t.Bytes
		case "unknown", "direct_unproven", "buffered_unproven":
			return record.Limit{}, false
		}
	}
	share := float64(cached) / float64(m.out.Bytes)
	switch {
	case share >= 0.99:
		return c.Find(record.PageCache, "host")
	case share <= 0.01:
		return m.striped(record.StorageRead)
	}
	st, ok := m.striped(record.StorageRead)
	pc, ok2 := c.Find(record.PageCache, "host")
	if !ok || !ok2 || st.GBps == 0 || pc.GBps == 0 {
		return record.Limit{}, false
	}
	return record.Limit{ID: record.StorageRead, Name: fmt.Sprintf("%s, with %.0f %% from the page cache", st.Name,
		100*share),
		GBps: 1 / (share/pc.GBps + (1-share)/st.GBps)}, true
}

// striped adds up the limits of the disks below the groups.
func (m *measure) striped(id string) (record.Limit, bool) {
	sum := record.Limit{ID: id}
	seen := map[string]bool{}
	var names []string
	for _, s := range m.Machine.Storage {
		key := StorageKey(s)
		if seen[key] {
			continue
		}
		seen[key] = true
		l, ok := m.Ceilings.Find(id, key)
		if !ok {
			return sum, false
		}
		sum.GBps += l.GBps
		sum.Rounds = l.Rounds // of one; several disks have no rounds in common
		names = append(names, l.Name)
	}
	if len(names) > 1 {
		sum.Rounds = nil
	}
	sum.Name = strings.Join(names, " and ")
	return sum, len(names) > 0
}

// busLimit returns the limit of copies between host and device memory.
func (m *measure) busLimit() (record.Limit, bool) {
	info := m.Device.Info()
	if info.Kind == device.Host {
		return m.Ceilings.Find(record.MemoryCopy, "host")
	}
	id := record.H2DPinned
	switch {
	case m.Spec.Op == Write && m.Spec.Memory == Pageable:
		id = record.D2HPageable
	case m.Spec.Op == Write:
		id = record.D2HPinned
	case m.Spec.Memory == Pageable:
		id = record.H2DPageable
	}
	return m.Ceilings.Find(id, DeviceKey(info))
}

// StorageKey returns the name under which a storage limit is stored: the block device or server of the mount, not the
// path.
func StorageKey(s record.Storage) string {
	if s.Source != "" {
		return s.Source
	}
	return s.FS + " at " + s.Path
}

// DeviceKey returns the name under which a device's limits are stored: its UUID, or its ID if it has no UUID.
func DeviceKey(i device.Info) string {
	if i.UUID != "" {
		return i.UUID
	}
	return i.ID
}
