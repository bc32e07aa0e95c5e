// SPDX-License-Identifier: Apache-2.0

// Package transfer is the engine: it moves runs of bytes from files into device
// memory, each by the fastest route open to it, with reading and copying
// overlapped, and reports which route every byte took.
//
// The journey of a chunk, from its plan to its copy, with the file of each step:
//
//	plan/planner.go  cuts segments into chunks and decides, by what is in the page cache, how each is read
//	planload.go      feeds the chunks of a load to the scheduler as they are planned
//	sched.go         hands chunks to workers, one of each running transfer in turn
//	worker.go        takes a chunk, and a free staging slot of its own where it needs one
//	a reader         reads it, in one of these ways:
//	                 readcache.go (page cache), readdirect.go (past it, into a slot or in place),
//	                 uringreader.go (past it, by io_uring), netread.go (a server's reply),
//	                 readcufile.go with cufilestream.go or cufilebatch.go (libcufile, to the device)
//	verifier.go      sums it, or leaves that to the device behind the copy; verify/ judges the blocks
//	deliver.go       queues the copy to the device, and later settles it: the slot is free again
//	fanout.go        queues the copies to other devices
//
// A slot is used again when the mark behind its copy has been passed. Where the
// device's memory is addressable, bytes are read into place and no slot is used.
// When all chunks are settled, startload.go ends the load, and loadreport.go hands
// its facts to describe.go, which makes every report.
//
// A save goes the other way: startsave.go cuts the file into blocks, writer.go
// gathers each from its devices (sources.go), sums it and writes it to a sink
// (sink.go), and publish.go gives the file its name. An upload (upload.go) gathers
// in gather.go; a write in place is put.go, and a move in the order of the caller's stream instream.go.
//
// The house: engine.go is the front. crew.go has the workers of a lane (lane.go):
// staging (staging/), devices (port.go) and what they need (library.go, ferry.go,
// summing.go). Where there are several GPUs, each may have a lane of its own. A file
// uses only what lies below it; plan, staging, tally and verify know nothing of the engine.
//
// Invariants:
//
//	T1  Each wanted byte of each segment is read once and delivered once; what
//	    is read between them goes nowhere.
//	T2  A transfer that succeeded, failed or was cancelled ends only when none of
//	    its copies to a device is queued or running any more.
//	T3  Staging of reads never exceeds Options.PoolSize, however many transfers
//	    run; that of writes in place is fixed and comes with the first one, and so
//	    are two slots for each connection that reads, or writes, over a network, at most 64 each way.
//	T4  A transfer succeeds only if every read was whole and no file changed.
//	T5  A transfer that verifies succeeds only if every block with a byte of a
//	    segment in it has its sum; each byte is summed before it is sent on, or
//	    by the device behind its copy, and then before it counts as delivered.
//	T6  A part that Ready has counted is not touched any more.
//	T7  A save that ends without an error has put a whole, durable file in place;
//	    one that fails before the file has its name leaves what was there. One to a
//	    sink has written every byte of it, and no more is promised.
//	T8  An upload that ends without an error was acknowledged whole by its server;
//	    one that fails takes its parts back, or says that it could not.
//	T9  What peers get is what the first device gets: a transfer ends, and a part
//	    counts as ready, only when every copy to every peer has been done.
package transfer
