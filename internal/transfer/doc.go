// SPDX-License-Identifier: Apache-2.0

// Package transfer is the engine that moves bytes from files into device memory and back. The engine uses the fastest
// possible route for each chunk, overlaps reads with copies, and reports the route of every byte.
//
// A load takes a chunk through the following steps, each in its own source file:
//
//	plan/planner.go  cuts segments into chunks and chooses how each is read, depending on the page cache
//	planload.go      gives the chunks of a load to the scheduler while it plans
//	sched.go         gives chunks to workers, in turn for each running transfer
//	worker.go        takes a chunk and, if needed, a free staging slot
//	a reader         reads the chunk in one of these ways:
//	                 readcache.go and readrows.go (page cache), readdirect.go (O_DIRECT, into a slot or into the
//	                 destination), uringreader.go (O_DIRECT by io_uring), netread.go (a server's reply),
//	                 readcufile.go with cufilestream.go or cufilebatch.go (libcufile, to the device)
//	sharing.go       lets loads of several processes read the same cold bytes of a file once; order.go chooses the next
//	                 ones, and trade.go brings them into memory that the processes share; lend.go lets the device copy
//	                 directly from this memory
//	verifier.go      computes checksums, or lets the device do so after the copy; verify/ compares the blocks
//	deliver.go       queues the copy to the device and, after the copy, frees the slot
//	convoy.go        lets copies that wait for a device go together as one batch
//	gate.go          lets threads that read from the page cache sleep, and wakes all of them at once
//	fanout.go        queues the copies to other devices
//
// A staging slot (a buffer in pinned host memory) is used again after the copy of its bytes has ended. If the CPU can
// address the device's memory, bytes are read directly into the destination and no staging slot is used. When all
// chunks are delivered, startload.go ends the load. loadreport.go collects the facts of a load, and describe.go makes
// a report from the facts.
//
// A save moves bytes from devices to a file. startsave.go cuts the file into blocks. writer.go collects each block
// from its devices (sources.go), computes its checksum and writes it to a sink (sink.go). publish.go renames the
// complete file to its path. The code in gather.go collects the blocks of an upload (upload.go) from the devices. The
// code in put.go writes to a range of an open file. The code in instream.go reads or writes a file in the order of the
// caller's CUDA stream.
//
// The engine itself is in engine.go. A lane (lane.go) is a set of staging memory (staging/), devices (port.go) and
// workers (crew.go). For each device, library.go opens libcufile, ferry.go makes small copies, and summing.go computes
// checksums on the device. If there are several GPUs, each may have its own lane. The packages plan, staging, tally
// and verify do not import the engine.
//
// Invariants:
//
//	T1  Each wanted byte of each segment is read once and delivered once;
//	    unwanted bytes that are read between segments are not delivered.
//	T2  A transfer that succeeded, failed or was cancelled ends only when none of
//	    its copies to a device is queued or running.
//	T3  Staging of reads never exceeds Options.PoolSize, for any number of transfers.
//	    Staging of writes in place has a fixed size and is made at the first write.
//	    Each network connection has two more slots, for at most 64 connections each way.
//	T4  A transfer succeeds only if every read was complete and no file changed.
//	T5  A transfer that verifies succeeds only if every block with a byte of a segment
//	    matches its checksum. Each byte is summed before it is copied, or by the
//	    device after the copy and before it counts as delivered.
//	T6  The engine does not touch a part any more after Ready has counted it.
//	T7  A save that ends without an error has put a complete, durable file in place.
//	    A save that fails before the rename leaves the old file. A save to a sink
//	    has written every byte, and promises no more.
//	T8  An upload that ends without an error was acknowledged by its server. An upload
//	    that fails removes its parts from the server, or reports that it could not.
//	T9  Peers receive the same bytes as the first device: a transfer ends, and a part
//	    counts as ready, only when every copy to every peer has ended.
package transfer
