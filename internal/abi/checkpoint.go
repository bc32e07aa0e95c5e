// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"context"
	"encoding/base64"
	"sync/atomic"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Checkpoints has the functions of checkpoints, which share the handles of a Table.
type Checkpoints struct{ *Table }

// counting is a query in progress that reports how far it is.
type counting struct {
	asking
	now, all atomic.Int64
}

// Progress returns the bytes that are done, and the bytes of the whole query.
func (c *counting) Progress() (done, total int64) { return c.now.Load(), c.all.Load() }

func (c *counting) tell(done, total int64) {
	c.now.Store(done)
	c.all.Store(total)
}

// start begins a query about checkpoints. The report of the job is the answer, or null if the job failed.
func (t Checkpoints) start(system uint64, client *clientOptions,
	question func(context.Context, *nebulaio.System, nebulaio.ClientOptions,
		func(done, total int64)) (any, error)) (uint64,
	error) {
	s, err := get[*nebulaio.System](t.Table, system, "system")
	if err != nil {
		return 0, err
	}
	server, err := client.client()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &counting{asking: asking{done: make(chan struct{})}}
	go func() {
		defer close(c.done)
		if c.answer, c.err = question(ctx, s, server, c.tell); c.err != nil {
			c.answer = nil
		}
	}()
	return t.put(&job{work: c, report: func() any { return c.answer }, cancel: cancel}), nil
}

type commitOptions struct {
	Manifest string        `json:"manifest"`
	Metadata string        `json:"metadata"`
	Client   clientOptions `json:"client"`
}

// StartCommit is nebulaio_checkpoint_commit_start.
func (t Checkpoints) StartCommit(system uint64, path, options string) (uint64, error) {
	var o commitOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	metadata, err := base64.StdEncoding.DecodeString(o.Metadata)
	if err != nil {
		return 0, errs.New(errs.Invalid, "read options", "metadata", "is not base64: "+err.Error()).WithFix(optionsFix)
	}
	return t.start(system, &o.Client, func(ctx context.Context, s *nebulaio.System, client nebulaio.ClientOptions,
		_ func(done, total int64)) (any, error) {
		return s.CommitCheckpoint(ctx, path, nebulaio.CheckpointCommitOptions{Manifest: []byte(o.Manifest),
			Metadata: metadata, Client: client})
	})
}

type listCheckpointsOptions struct {
	All    bool          `json:"all"`
	Client clientOptions `json:"client"`
}

// StartList is nebulaio_checkpoint_list_start.
func (t Checkpoints) StartList(system uint64, path, options string) (uint64, error) {
	var o listCheckpointsOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	return t.start(system, &o.Client, func(ctx context.Context, s *nebulaio.System, client nebulaio.ClientOptions,
		_ func(done, total int64)) (any, error) {
		return s.ListCheckpoints(ctx, path, nebulaio.CheckpointListOptions{All: o.All, Client: client})
	})
}

type verifyCheckpointOptions struct {
	Client clientOptions `json:"client"`
}

// StartVerify is nebulaio_checkpoint_verify_start.
func (t Checkpoints) StartVerify(system uint64, path, options string) (uint64, error) {
	var o verifyCheckpointOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	return t.start(system, &o.Client, func(ctx context.Context, s *nebulaio.System, client nebulaio.ClientOptions,
		tell func(done, total int64)) (any, error) {
		return s.VerifyCheckpoint(ctx, path, nebulaio.CheckpointVerifyOptions{Progress: tell, Client: client})
	})
}

type pruneCheckpointsOptions struct {
	KeepLast  int           `json:"keep_last"`
	KeepEvery int64         `json:"keep_every"`
	DryRun    bool          `json:"dry_run"`
	Client    clientOptions `json:"client"`
}

// StartPrune is nebulaio_checkpoint_prune_start.
func (t Checkpoints) StartPrune(system uint64, path, options string) (uint64, error) {
	var o pruneCheckpointsOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	return t.start(system, &o.Client, func(ctx context.Context, s *nebulaio.System, client nebulaio.ClientOptions,
		_ func(done, total int64)) (any, error) {
		return s.PruneCheckpoints(ctx, path, nebulaio.CheckpointPruneOptions{KeepLast: o.KeepLast, KeepEvery: o.KeepEvery,
			DryRun: o.DryRun, Client: client})
	})
}
