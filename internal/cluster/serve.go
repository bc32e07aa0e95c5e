// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// memberHeader is the name of the HTTP header with the name of the answering member.
const memberHeader = "Nebulaio-Member"

// writeStall is the largest time in which a member takes one block. The reader behind the member may be slow.
const writeStall = time.Minute

// newServer returns the HTTP server for other members.
func (n *Node) newServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           http.HandlerFunc(n.serve),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		Protocols:         &protocols,
		ErrorLog:          slog.NewLogLogger(n.o.Log.Handler(), slog.LevelDebug),
	}
}

// serve answers a request of another member. The gate has proven that the other end is a member.
func (n *Node) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(memberHeader, n.o.Name)
	switch {
	case r.URL.Path != blocksPath:
		http.Error(w, "no such path", http.StatusNotFound)
		return
	case r.Method != http.MethodGet:
		http.Error(w, "expected GET", http.StatusMethodNotAllowed)
		return
	}
	select {
	case n.slots <- struct{}{}:
		defer func() { <-n.slots }()
	default:
		n.served.busy.Add(1)
		http.Error(w, "too many requests in progress", http.StatusServiceUnavailable)
		return
	}
	if err := n.serveBlocks(w, r); err != nil {
		n.served.errors.Add(1)
		n.o.Log.Debug("a request of a member failed", "member", r.RemoteAddr, "error", err)
	}
}

// statusOf returns the HTTP status for a failure of the Extents.
func statusOf(err error) int {
	switch errs.KindOf(err) {
	case errs.Invalid:
		return http.StatusBadRequest
	case errs.NotFound:
		return http.StatusNotFound
	}
	return http.StatusBadGateway
}

// giveSigns tells the other member again and again that this one is alive, while the first block takes its time:
// upstream may be slow. The signs are replies with an informational status. The returned function ends them.
func (n *Node) giveSigns(w http.ResponseWriter) (quiet func()) {
	w.WriteHeader(http.StatusProcessing)
	var done sync.WaitGroup
	end := make(chan struct{})
	done.Go(func() {
		every := time.NewTicker(max(n.o.Limits.FirstByte/3, time.Millisecond))
		defer every.Stop()
		for {
			select {
			case <-every.C:
				w.WriteHeader(http.StatusProcessing)
			case <-end:
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(end)
		done.Wait()
	})
}

func (n *Node) serveBlocks(w http.ResponseWriter, r *http.Request) error {
	id, span, err := decodeRequest(r.URL.RawQuery)
	if err != nil {
		http.Error(w, errs.MessageOf(err), http.StatusBadRequest)
		return err
	}
	quiet := n.giveSigns(w)
	defer quiet()
	blocks, err := n.o.Extents.Blocks(r.Context(), id, span)
	var block Block
	if err == nil {
		defer blocks.Close()
		block, err = blocks.Next() // before the status, so that a failure gets a status of its own
		err = short(err)
	}
	quiet()
	if err != nil {
		http.Error(w, errs.MessageOf(err), statusOf(err))
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(replyBytes(id, span), 10))
	out := http.NewResponseController(w)
	head := appendHeader(make([]byte, 0, headerBytes+blockHeader), id, span)
	for i := span.First; ; i++ {
		if block.Index != i || int64(len(block.Data)) != lengthOf(id, i) {
			err = errs.New(errs.Other, "serve blocks of", id.Key, "the cache gave block "+strconv.FormatInt(block.Index, 10)+
				"; expected "+strconv.FormatInt(i, 10))
			break
		}
		_ = out.SetWriteDeadline(time.Now().Add(writeStall))
		head = appendBlock(head, block)
		if _, err = w.Write(head); err != nil {
			break
		}
		if _, err = w.Write(block.Data); err != nil {
			break
		}
		if err = out.Flush(); err != nil { // the next block may take long
			break
		}
		n.served.blocks.Add(1)
		n.served.bytes.Add(int64(len(block.Data)))
		if i == span.First+span.Count-1 {
			n.served.requests.Add(1)
			return nil
		}
		head = head[:0]
		if block, err = blocks.Next(); err != nil {
			err = short(err)
			break
		}
	}
	if errors.Is(err, context.Canceled) || r.Context().Err() != nil {
		err = nil // the other member has closed its request
	}
	return err // a reply with too few bytes ends its connection, so that nobody takes it for a whole one
}
