// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	door "github.com/nebulaio/nebulaio/internal/gpudirect/server"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

// doorSocket is the default name of the door's socket in the data directory.
const doorSocket = "gpudirect.sock"

// Door describes the GPUDirect door of a server.
type Door struct {
	// Served reports whether the door accepts clients. If Served is false, Reason says why and Fix says what to do.
	Served bool   `json:"served"`
	Socket string `json:"socket,omitempty"` // path of the door's socket; may be empty if Served is false
	Store  string `json:"store,omitempty"`  // unique ID of the store
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
	// Writes reports whether clients can create objects through the door. If Writes is false, WritesReason says why
	// and WritesFix says what to do.
	Writes       bool   `json:"writes"`
	WritesReason string `json:"writes_reason,omitempty"`
	WritesFix    string `json:"writes_fix,omitempty"`
	// Reopenable, if not empty, explains why root and clients with the server's user ID can reopen a read-only file
	// of the door for writing.
	Reopenable string `json:"reopenable,omitempty"`

	Settings DoorSettings `json:"settings"`
	// Stats holds the statistics of the door, or nil if the door is not served.
	Stats *door.Stats `json:"stats,omitempty"`
	// Notes holds one sentence for each setting of the door that has less effect than its value says.
	Notes []string `json:"notes,omitempty"`
}

// DoorSettings holds the settings of the door. The JSON name of each field is the name of its setting in the
// configuration, without the prefix "gpudirect.".
type DoorSettings struct {
	Enabled         bool   `json:"enabled"`
	BufferPoolSize  int64  `json:"buffer_pool_size"`
	EnableAsync     bool   `json:"enable_async"`
	DeviceIDs       []int  `json:"device_ids"` // indices of the GPUs that clients may use; empty means all GPUs
	MaxTransferSize int64  `json:"max_transfer_size"`
	EnableP2P       bool   `json:"enable_p2p"`
	QueueDepth      int    `json:"queue_depth"`
	IdleTimeout     string `json:"idle_timeout"`
	MaxConnections  int    `json:"max_connections"`
	MaxHandles      int    `json:"max_handles"`
	MaxDraftBytes   int64  `json:"max_draft_bytes"`
	ReadOnlyMount   bool   `json:"read_only_mount"`
	RDMA            bool   `json:"rdma"`
}

func doorSettings(c *config.Config) DoorSettings {
	g := &c.GPUDirect
	return DoorSettings{Enabled: g.Enabled, BufferPoolSize: g.BufferPoolSize, EnableAsync: g.EnableAsync,
		DeviceIDs:       append([]int{}, g.Devices()...),
		MaxTransferSize: g.MaxTransferSize, EnableP2P: g.EnableP2P, QueueDepth: g.QueueDepth,
		IdleTimeout:    g.IdleTimeout.String(),
		MaxConnections: g.MaxConnections, MaxHandles: g.MaxHandles, MaxDraftBytes: g.MaxDraftBytes,
		ReadOnlyMount: g.ReadOnlyMount, RDMA: c.RDMA}
}

// doorPath returns the absolute path of the door's socket.
func doorPath(c *config.Config) (string, error) {
	if c.GPUDirect.Socket != "" {
		return c.GPUDirect.Socket, nil
	}
	path, err := filepath.Abs(filepath.Join(c.Data, doorSocket))
	return path, errs.Wrap("open the GPUDirect socket", c.Data, err)
}

// doorService is the GPUDirect door of a running server, or the reason why there is none.
type doorService struct {
	about    Door // state when the server started; never changed
	server   *door.Server
	listener *door.Listener
}

// openDoor opens the door if the configuration asks for it. The door accepts nothing before it is served.
func (s *server) openDoor(ctx context.Context, st store, accounts *iam.Service, judge object.Authorizer) (*doorService,
	error) {
	c, d := s.Config, &doorService{about: Door{Store: st.id(), Settings: doorSettings(s.Config), Notes: s.Config.Notes()}}
	if !c.GPUDirect.Enabled {
		d.about.Reason, d.about.Fix = "gpudirect.enabled is false",
			"set gpudirect.enabled or NEBULAIO_GPUDIRECT_ENABLED to true and restart the server"
		return d, nil
	}
	path, err := doorPath(c)
	if err != nil {
		return nil, err
	}
	if admin, err := filepath.Abs(filepath.Join(c.Data, adminSocket)); err == nil && filepath.Clean(path) == admin {
		return nil, errs.New(errs.Invalid, "open the GPUDirect socket", path,
			"is the server's administration socket").WithFix("set gpudirect.socket to another name")
	}
	d.about.Served, d.about.Socket, d.about.Writes = true, path, true
	if err := st.canDraft(ctx); err != nil {
		d.about.Writes, d.about.WritesReason, d.about.WritesFix = false, withoutFix(err), errs.FixOf(err)
	}
	if err := st.reopenable(); err != nil {
		d.about.Reopenable = err.Error()
	}
	limits := &c.GPUDirect
	d.server, err = door.New(door.Options{
		Store: st, StoreID: st.id(), Authorizer: judge, Drain: c.DrainTimeout, Log: component(s.log, "gpudirect"),
		Devices: gpuIndex(), Observe: s.web.observeDoor(),
		Secret: func(accessKey string) (string, bool) {
			a, err := accounts.Get(accessKey)
			return a.Secret, err == nil
		},
		Settings: door.Settings{BufferPoolSize: limits.BufferPoolSize, MaxTransferSize: limits.MaxTransferSize,
			QueueDepth: limits.QueueDepth,
			Async:      limits.EnableAsync, P2P: limits.EnableP2P, Devices: limits.Devices(), NoWrites: d.about.WritesReason},
		Reopenable: d.about.Reopenable,
		Limits: door.Limits{Connections: limits.MaxConnections, Handles: limits.MaxHandles,
			DraftBytes: limits.MaxDraftBytes, Idle: limits.IdleTimeout},
	})
	if err != nil {
		return nil, err
	}
	if d.listener, err = door.Listen(path); err != nil {
		if st.writable(ctx) == nil {
			return nil, err
		}
		// A socket cannot be created in the directory of a read-only store. The server still serves S3.
		d.server = nil
		d.about.Served, d.about.Socket, d.about.Writes = false, "", false
		d.about.Reason, d.about.Fix = withoutFix(err), "restart the server when its data directory can be written, or set "+
			"gpudirect.socket to a path that can"
	}
	return d, nil
}

// say logs the state of the door.
func (d *doorService) say(s *server) {
	log := component(s.log, "gpudirect")
	for _, note := range d.about.Notes {
		log.Warn("a setting has less effect than its value says", "note", note)
	}
	if !d.about.Served {
		log.Info("the door is not served", "reason", d.about.Reason)
		return
	}
	log.Info("the door is open", "socket", d.about.Socket, "store", d.about.Store, "device_ids",
		d.about.Settings.DeviceIDs)
	if !d.about.Writes {
		log.Warn("objects cannot be created through the door", "reason", d.about.WritesReason, "fix", d.about.WritesFix)
	}
}

// serve runs the door until ctx ends and its clients are gone. The channel gets the result. Without a door it gets
// nothing.
func (d *doorService) serve(ctx context.Context) <-chan error {
	ended := make(chan error, 1)
	if d.server != nil {
		go func() { ended <- d.server.Serve(ctx, d.listener) }()
	}
	return ended
}

// close closes a door that is not served.
func (d *doorService) close() {
	if d.listener != nil {
		_ = d.listener.Close() // nothing was accepted from it
	}
}

// status returns the state of the door with its current statistics.
func (d *doorService) status() Door {
	now := d.about
	if d.server != nil {
		st := d.server.Stats()
		now.Stats = &st
	}
	return now
}

// doorStats returns the statistics of the door, and false if there is no door.
func (s *server) doorStats() (door.Stats, bool) {
	if d := s.door.Load(); d != nil && d.server != nil {
		return d.server.Stats(), true
	}
	return door.Stats{}, false
}

// discover answers clients that ask the S3 endpoint for the door.
func (s *server) discover() []byte {
	d := wire.Discovery{Version: 1, Reason: "the server is starting", Fix: "ask again"}
	if open := s.door.Load(); open != nil {
		a := &open.about
		d = wire.Discovery{Version: 1, Enabled: a.Served, Store: a.Store, Reason: a.Reason, Fix: a.Fix}
		if a.Served {
			d.Socket = a.Socket
		}
	}
	text, _ := json.Marshal(d) // cannot fail: all fields are plain values
	return text
}

// gpuIndex returns a function that finds the index of a GPU by its UUID, in the order of nvidia-smi. The first call
// lists the GPUs of this host, without creating a context on them.
func gpuIndex() func(uuid string) (int, bool) {
	look := sync.OnceValue(func() map[string]int {
		set, err := open.New(open.Options{})
		if err != nil {
			return nil
		}
		defer set.Close()
		return gpuOrder(set.Survey().Devices)
	})
	return func(uuid string) (int, bool) {
		i, ok := look()[uuid]
		return i, ok
	}
}

// GPUs returns the GPUs among the given devices, ordered by PCI address. The program nvidia-smi and the setting
// gpudirect.device_ids also number GPUs by PCI address.
func GPUs(all []device.Info) []device.Info {
	gpus := slices.DeleteFunc(slices.Clone(all), func(d device.Info) bool { return d.Kind != device.CUDA })
	slices.SortStableFunc(gpus, func(a, b device.Info) int {
		return cmp.Compare(strings.ToLower(a.PCI),
			strings.ToLower(b.PCI))
	})
	return gpus
}

// gpuOrder returns the indices of GPUs by UUID.
func gpuOrder(all []device.Info) map[string]int {
	order := map[string]int{}
	for i, d := range GPUs(all) {
		if d.UUID != "" {
			order[d.UUID] = i
		}
	}
	return order
}

// withoutFix returns the text of an error without its fix.
func withoutFix(err error) string { return errs.MessageOf(err) }
