// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"io"

	tea "charm.land/bubbletea/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Options configure the interactive program.
type Options struct {
	In  io.Reader // the keyboard
	Out io.Writer // the terminal
	// View is how samples are drawn at first; keys change it.
	View View
	// Replay is true if the samples come from a recording.
	Replay bool
	// Env lists the environment as NAME=VALUE, from which the kind of the terminal is taken.
	Env []string
}

// frames is how often a second the screen may be drawn. Samples come once a second; the rest is for keys.
const frames = 10

// Run shows samples until the user quits or ctx ends. Run puts the terminal back into its state, however it ends, and
// does not use the source any more. If ctx ends, Run returns its cause; an error of the source ends Run too.
func Run(ctx context.Context, src Source, o Options) error {
	if o.View.Order == "" {
		o.View.Order = ByReads
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &model{ctx: inner, source: src, view: o.View, replay: o.Replay}
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithFPS(frames),
		tea.WithoutSignalHandler(), tea.WithEnvironment(o.Env),
		tea.WithWindowSize(80, 24)) // until the terminal tells its size
	_, err := p.Run()
	cancel()
	m.close()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case m.err != nil:
		return m.err
	case err != nil && !errors.Is(err, tea.ErrInterrupted):
		return errs.Wrap("show the meters on", "the terminal", err)
	}
	return nil
}
