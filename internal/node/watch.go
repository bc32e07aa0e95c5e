// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// watchEvery is the time between two checks whether the store accepts new content.
const watchEvery = time.Second

// watchStore logs when the store starts and stops refusing new content, until ctx ends. When the store accepts new
// content again, watchStore opens the administration socket if that failed before.
func (s *server) watchStore(ctx context.Context, st store, admin *adminService) {
	log := component(s.log, "store")
	refusing := false
	look := func() {
		err := st.writable(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil && !refusing && s.failure() == nil: // a failure is logged elsewhere
			refusing = true
			log.Error("the store takes no new content", "error", withoutFix(err), "fix", errs.FixOf(err))
		case err == nil && refusing:
			refusing = false
			log.Info("the store takes new content again")
			if err := admin.start(ctx, st); err != nil {
				log.Warn("opening the administration socket failed", "error", err)
			}
		}
	}
	every(ctx, 0, watchEvery, look)
}

// adminService is the administration socket. It may open later than the server.
type adminService struct {
	s     *server
	admin Admin
	mu    sync.Mutex
	end   func()
}

// start opens the socket if it is not open. If the store cannot be written, a failure is only logged: the server serves
// reads without the socket.
func (a *adminService) start(ctx context.Context, st store) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.end != nil {
		return nil
	}
	end, err := a.s.serveAdmin(a.admin)
	if err != nil && st.writable(ctx) != nil {
		component(a.s.log, "admin").Warn("opening the administration socket failed; the server tries again when the store "+
			"can be written", "error", err)
		return nil
	}
	a.end = end
	return err
}

// stop closes the socket.
func (a *adminService) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.end != nil {
		a.end()
	}
}
