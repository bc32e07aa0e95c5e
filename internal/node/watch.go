// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// watchEvery is how often the server looks whether its store takes new content.
const watchEvery = time.Second

// watchStore logs when the store begins and ends to refuse new content, until ctx ends. What could not be opened on a
// store that cannot be written is opened when it can.
func (s *server) watchStore(ctx context.Context, st store, admin *adminService) {
	log := component(s.log, "store")
	refusing := false
	look := func() {
		err := st.writable(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil && !refusing && s.failure() == nil: // a failure was logged as such
			refusing = true
			log.Error("the store takes no new content", "error", withoutFix(err), "fix", errs.FixOf(err))
		case err == nil && refusing:
			refusing = false
			log.Info("the store takes new content again")
			if err := admin.start(ctx, st); err != nil {
				log.Warn("the administration socket could not be opened", "error", err)
			}
		}
	}
	look()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			look()
		}
	}
}

// adminService is the administration socket, which may open later than the server.
type adminService struct {
	s     *server
	admin Admin
	mu    sync.Mutex
	end   func()
}

// start opens the socket where it is not open. On a store that cannot be written a failure is logged only: the server
// serves reads without it.
func (a *adminService) start(ctx context.Context, st store) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.end != nil {
		return nil
	}
	end, err := a.s.serveAdmin(a.admin)
	if err != nil && st.writable(ctx) != nil {
		component(a.s.log, "admin").Warn("the server cannot be administered while its store cannot be written", "error", err)
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
