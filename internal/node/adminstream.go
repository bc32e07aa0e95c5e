// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// streamLine is one line of the reply to a long task: progress, or at the end a report or an error.
type streamLine[P, R any] struct {
	Progress *P       `json:"progress,omitempty"`
	Report   *R       `json:"report,omitempty"`
	Error    *problem `json:"error,omitempty"`
}

// progressEvery is the shortest time between two lines of progress.
const progressEvery = 200 * time.Millisecond

// stream runs a long task and replies with its progress, line by line.
func stream[P, R any](w http.ResponseWriter, run func(progress func(P)) (R, error)) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	var last time.Time
	report, err := run(func(p P) {
		if now := time.Now(); now.Sub(last) >= progressEvery {
			last = now
			_ = enc.Encode(streamLine[P, R]{Progress: &p}) // a client that disconnected has ended the context
			_ = out.Flush()
		}
	})
	line := streamLine[P, R]{Report: &report}
	if err != nil {
		line = streamLine[P, R]{Error: newProblem(err)}
	}
	_ = enc.Encode(line)
}

// follow makes the server run a long task, passes its progress to progress and returns its report. op names the
// task in errors; progress may be nil.
func follow[P, R any](ctx context.Context, r *remote, op, path string, ask any, progress func(P)) (R, error) {
	var none R
	resp, err := r.send(ctx, http.MethodPost, path, ask)
	if err != nil {
		return none, err
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(resp.Body); ; {
		var line streamLine[P, R]
		if err := dec.Decode(&line); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			} else if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return none, errs.Wrap(op, r.dir, err)
		}
		switch {
		case line.Error != nil:
			return none, line.Error.err()
		case line.Report != nil:
			return *line.Report, nil
		case line.Progress != nil && progress != nil:
			progress(*line.Progress)
		}
	}
}
