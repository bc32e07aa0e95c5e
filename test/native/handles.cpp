// SPDX-License-Identifier: Apache-2.0
//
// Tests writes to cuFile handles of objects: handles DEVICE. The variables are those of
// gpudirect.cpp; READER_ACCESS_KEY and READER_SECRET_KEY name an account that may
// only read "my-bucket", and SERVER_DATA the server's data directory. The program runs
// itself again for what ends a process: handles DEVICE HOW KEY.
#include <cufile.h>
#include "nebulaio/gpudirect.h"

#include "check.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

namespace {

const memory *place;
const char *program;
const char *device;

const size_t length = (3 << 20) + 4096; // not a whole number of blocks
const char *const bucket = "my-bucket";

struct server_of_tests {
	nebulaio::system sys;
	nebulaio::client client{sys};

	void put(const std::string &key, const std::string &bytes)
	{
		client.write({bucket, key, bytes.data(), bytes.size()});
	}
	// Reads an object, which compares each block with its checksum.
	std::string get(const std::string &key, size_t n)
	{
		std::string out(n, '\0');
		EXPECT(client.read({bucket, key, &out[0], n}) == n);
		return out;
	}
} *server;

void init(const std::string &key = "", const std::string &secret = "")
{
	static CUfileDescr_t descr;
	nebulaio::GPUDirectInit(&descr, std::getenv("NEBULAIO_ENDPOINT"), key, secret);
}

CUfileHandle_t open(const std::string &key)
{
	CUfileHandle_t handle;
	nebulaio::GPUDirectOpen(&handle, bucket, key);
	return handle;
}

CUfileHandle_t open(const std::string &key, nebulaio::GPUDirectMode mode, const std::string &options = "")
{
	CUfileHandle_t handle;
	nebulaio::GPUDirectOpen(&handle, bucket, key, mode, "", options);
	return handle;
}

// Writes bytes at an offset of a handle, as a program does with GPU memory.
void put(CUfileHandle_t handle, const std::string &bytes, off_t offset)
{
	block from(place, bytes);
	EXPECT(cuFileWrite(handle, from.address(), bytes.size(), offset, 0) == static_cast<ssize_t>(bytes.size()));
}

std::string get(CUfileHandle_t handle, size_t n, off_t offset = 0)
{
	block to(place, n);
	const ssize_t got = cuFileRead(handle, to.address(), n, offset, 0);
	EXPECT(got >= 0);
	return to.read().substr(0, static_cast<size_t>(got));
}

std::string with(std::string bytes, const std::string &piece, size_t offset)
{
	bytes.resize(std::max(bytes.size(), offset + piece.size()));
	return bytes.replace(offset, piece.size(), piece);
}

// A part is overwritten, the object grows, and others keep what they hold.
void changes()
{
	const std::string old = random_bytes(length, 40), piece = random_bytes(8192, 41);
	server->put("k", old);
	const CUfileHandle_t other = open("k"), handle = open("k");
	EXPECT(get(handle, length) == old && nebulaio::GPUDirectSize(handle) == length);
	put(handle, piece, 4096);
	put(handle, piece, length); // behind the end
	const std::string want = with(with(old, piece, 4096), piece, length);
	EXPECT(nebulaio::GPUDirectSize(handle) == want.size() && get(handle, want.size() + 4096) == want);
	EXPECT(get(other, length + 4096) == old && server->get("k", length) == old); // nobody else sees it
	cuFileHandleDeregister(handle);
	nebulaio::GPUDirectRelease(handle); // was once necessary, and is no error
	EXPECT(server->get("k", want.size()) == want);
	EXPECT(get(other, length + 4096) == old);
	nebulaio::GPUDirectClose(other);
	// A handle that wrote nothing publishes nothing.
	const std::string before = server->client.stat(bucket, "k");
	cuFileHandleDeregister(open("k"));
	EXPECT(server->client.stat(bucket, "k") == before);
	// What is discarded leaves no trace.
	const CUfileHandle_t dropped = open("k");
	put(dropped, piece, 0);
	nebulaio::GPUDirectDiscard(dropped);
	EXPECT(server->get("k", want.size()) == want);
}

// Calls for streams and batches go to the private copy too.
void queued()
{
	const std::string old = random_bytes(length, 42), piece = random_bytes(4096, 43);
	server->put("k", old);
	const CUfileHandle_t handle = open("k");
	block from(place, piece), to(place, 4096);
	size_t n = 4096;
	off_t at = 8192, none = 0;
	ssize_t wrote = 0, got = 0;
	EXPECT(cuFileWriteAsync(handle, from.address(), &n, &at, &none, &wrote, nullptr).err == CU_FILE_SUCCESS);
	EXPECT(cuFileReadAsync(handle, to.address(), &n, &at, &none, &got, nullptr).err == CU_FILE_SUCCESS);
	if (place->cuda)
		EXPECT(place->stream_wait(nullptr) == 0);
	if (wrote != 4096 || got != 4096)
		std::cerr << "queued: wrote " << wrote << " bytes, read " << got << '\n';
	EXPECT(wrote == 4096);
	EXPECT(got == 4096);
	EXPECT(to.read() == piece);
	CUfileBatchHandle_t batch;
	EXPECT(cuFileBatchIOSetUp(&batch, 1).err == CU_FILE_SUCCESS);
	CUfileIOParams_t io{};
	io.mode = CUFILE_BATCH;
	io.u.batch.devPtr_base = from.address();
	io.u.batch.file_offset = static_cast<off_t>(length);
	io.u.batch.size = 4096;
	io.fh = handle;
	io.opcode = CUFILE_WRITE;
	EXPECT(cuFileBatchIOSubmit(batch, 1, &io, 0).err == CU_FILE_SUCCESS);
	CUfileIOEvents_t event{};
	unsigned events = 0;
	while (events == 0) {
		events = 1;
		EXPECT(cuFileBatchIOGetStatus(batch, 1, &events, &event, nullptr).err == CU_FILE_SUCCESS);
	}
	EXPECT(event.status == CUFILE_COMPLETE && event.ret == 4096);
	cuFileBatchIODestroy(batch);
	cuFileHandleDeregister(handle);
	EXPECT(server->get("k", length + 4096) == with(with(old, piece, 8192), piece, length));
}

void modes()
{
	using nebulaio::GPUDirectMode;
	const std::string old = random_bytes(length, 44), piece = random_bytes(4096, 45);
	server->put("k", old);
	block from(place, piece);
	CUfileHandle_t handle = open("k", GPUDirectMode::read);
	EXPECT(cuFileWrite(handle, from.address(), 4096, 0, 0) == -1 && errno == EBADF);
	EXPECT(nebulaio::GPUDirectLastError().find("opened for reading") != std::string::npos);
	nebulaio::GPUDirectClose(handle);

	handle = open("k", GPUDirectMode::read_write);
	put(handle, piece, 0);
	EXPECT(get(handle, length) == with(old, piece, 0));
	EXPECT(nebulaio::GPUDirectCommit(handle).find("\"etag\"") != std::string::npos);
	EXPECT(server->get("k", length) == with(old, piece, 0));

	handle = open("k", GPUDirectMode::write);
	put(handle, piece, 0);
	nebulaio::GPUDirectClose(handle);
	EXPECT(server->get("k", 4096) == piece && server->client.stat(bucket, "k").find("\"size\":4096") != std::string::npos);

	handle = open("made", GPUDirectMode::create);
	put(handle, piece, 4096);
	cuFileHandleDeregister(handle);
	EXPECT(server->get("made", 8192) == std::string(4096, '\0') + piece);
	std::string said;
	handle = open("made", GPUDirectMode::create);
	EXPECT(status_of([&] { cuFileHandleDeregister(handle); }, &said) == NEBULAIO_ERR_INVALID);
	EXPECT(server->get("made", 8192) == std::string(4096, '\0') + piece);
	EXPECT(status_of([&] { open("none", GPUDirectMode::read_write); }) == NEBULAIO_ERR_NOT_FOUND);
	server->client.remove(bucket, "made");
}

void two_writers()
{
	const std::string old = random_bytes(length, 46), a = random_bytes(4096, 47), b = random_bytes(4096, 48);
	server->put("k", old);
	const CUfileHandle_t one = open("k"), two = open("k");
	const CUfileHandle_t last = open("k", nebulaio::GPUDirectMode::automatic, R"({"replace":true})");
	put(one, a, 0);
	put(two, b, 4096);
	put(last, b, 8192);
	cuFileHandleDeregister(one);
	std::string said;
	EXPECT(status_of([&] { cuFileHandleDeregister(two); }, &said) == NEBULAIO_ERR_INVALID);
	EXPECT(said.find("s3://my-bucket/k") != std::string::npos && said.find("replaced") != std::string::npos);
	EXPECT(server->get("k", length) == with(old, a, 0));
	cuFileHandleDeregister(last);
	EXPECT(server->get("k", length) == with(old, b, 8192));
	// During an exception, the message goes to standard error and the process lives.
	const CUfileHandle_t late = open("k");
	put(late, a, 0);
	server->put("k", old);
	struct ends {
		CUfileHandle_t handle;
		~ends() { cuFileHandleDeregister(handle); }
	};
	try {
		const ends at_the_end{late};
		throw std::runtime_error("first");
	} catch (const std::runtime_error &problem) {
		EXPECT(problem.what() == std::string("first"));
	}
	EXPECT(server->get("k", length) == old);
}

// A write that failed keeps the object as it was, unless the write is repeated.
void failures()
{
	void (*fail)(const char *, long, long, int, int, int) = nullptr;
	void *const found = dlsym(RTLD_DEFAULT, "fake_fail"); // the stand-in for libcufile alone has it
	if (found == nullptr)
		return;
	std::memcpy(&fail, &found, sizeof fail);
	const std::string old = random_bytes(length, 49), piece = random_bytes(4096, 50);
	server->put("k", old);
	block from(place, piece);
	for (const bool repeated : {false, true}) {
		const CUfileHandle_t handle = open("k");
		put(handle, piece, 0);
		fail("cuFileWrite", 0, 1, ENOSPC, 0, 1);
		EXPECT(cuFileWrite(handle, from.address(), 4096, 8192, 0) == -1 && errno == ENOSPC);
		if (repeated)
			put(handle, piece, 8192);
		std::string said;
		EXPECT(status_of([&] { cuFileHandleDeregister(handle); }, &said) == (repeated ? NEBULAIO_OK : NEBULAIO_ERR_IO));
		EXPECT(repeated || said.find("4096 bytes at offset 8192") != std::string::npos);
		EXPECT(server->get("k", length) == (repeated ? with(with(old, piece, 0), piece, 8192) : old));
	}
}

// A program closes the descriptor that it was shown, and another file gets its number.
void closed_descriptor()
{
	const std::string old = random_bytes(length, 51), piece = random_bytes(4096, 52);
	server->put("k", old);
	CUfileDescr_t descr;
	nebulaio::GPUDirectInit(&descr, std::getenv("NEBULAIO_ENDPOINT"));
	const CUfileHandle_t handle = open("k");
	put(handle, piece, 0);
	const int fd = descr.handle.fd, other = ::open("/dev/null", O_RDONLY);
	EXPECT(fd >= 0 && dup2(other, fd) == fd && close(other) == 0);
	cuFileHandleDeregister(handle);
	EXPECT(fcntl(fd, F_GETFD) >= 0 && close(fd) == 0); // it is the program's
	EXPECT(server->get("k", length) == with(old, piece, 0));
	init();
}

// Files of the program's own are not touched.
void others()
{
	char name[] = "/var/tmp/nebulaio-handles.XXXXXX";
	const int fd = mkstemp(name);
	CUfileDescr_t descr{};
	descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr.handle.fd = fd;
	CUfileHandle_t handle;
	EXPECT(fd >= 0 && cuFileHandleRegister(&handle, &descr).err == CU_FILE_SUCCESS);
	put(handle, random_bytes(4096, 53), 0);
	EXPECT(get(handle, 4096) == random_bytes(4096, 53));
	cuFileHandleDeregister(handle);
	EXPECT(close(fd) == 0 && unlink(name) == 0);
}

void reader()
{
	const char *const key = std::getenv("READER_ACCESS_KEY"), *const secret = std::getenv("READER_SECRET_KEY");
	if (!key || !secret)
		fatal("READER_ACCESS_KEY and READER_SECRET_KEY are not set");
	const std::string old = random_bytes(length, 54);
	server->put("k", old);
	init(key, secret);
	const CUfileHandle_t handle = open("k");
	block from(place, old);
	EXPECT(get(handle, length) == old);
	EXPECT(cuFileWrite(handle, from.address(), 4096, 0, 0) == -1 && errno == EACCES);
	EXPECT(nebulaio::GPUDirectLastError().find("PutObject") != std::string::npos);
	EXPECT(get(handle, length) == old); // it can still be read
	cuFileHandleDeregister(handle);
	EXPECT(status_of([&] { open("k", nebulaio::GPUDirectMode::read_write); }) == NEBULAIO_ERR_PERMISSION);
	EXPECT(server->get("k", length) == old);
	init();
}

const std::string mark = random_bytes(4096, 55); // what the processes below write

// Runs this program again and returns how it ended, as waitpid tells it.
int run(const char *how, const char *key)
{
	pid_t child = 0;
	char *const args[] = {const_cast<char *>(program), const_cast<char *>(device), const_cast<char *>(how),
	                      const_cast<char *>(key), nullptr};
	EXPECT(posix_spawn(&child, program, nullptr, nullptr, args, environ) == 0);
	int status = 0;
	EXPECT(waitpid(child, &status, 0) == child);
	return status;
}

// Waits until no private copy is left at the server.
void cleaned()
{
	const std::filesystem::path folder = std::filesystem::path(std::getenv("SERVER_DATA")) / "tmp";
	const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
	while (!std::filesystem::is_empty(folder)) {
		if (std::chrono::steady_clock::now() > end)
			fatal("the server keeps a private copy of a process that ended");
		std::this_thread::yield();
	}
}

void ends()
{
	const std::string old = random_bytes(length, 56);
	const struct {
		const char *how;
		bool committed;
	} all[] = {{"killed", false}, {"left", false}, {"aborted", false}, {"ended", true}, {"forked", true}};
	for (const auto &one : all) {
		server->put("k", old);
		const int status = run(one.how, "k");
		const bool normal = WIFEXITED(status) && WEXITSTATUS(status) == 0;
		EXPECT(normal == (std::string(one.how) != "killed" && std::string(one.how) != "aborted"));
		EXPECT(server->get("k", length) == (one.committed ? with(old, mark, 4096) : old));
		cleaned();
	}
}

// Writes to an object and ends the process in one of the ways of ends.
[[noreturn]] void end(const std::string &how, const char *key)
{
	init();
	const CUfileHandle_t handle = open(key);
	put(handle, mark, 4096);
	if (how == "killed")
		kill(getpid(), SIGKILL);
	if (how == "aborted")
		std::abort();
	if (how == "left")
		_exit(0);
	if (how != "forked")
		std::exit(0);
	int ask[2], answer[2];
	EXPECT(pipe(ask) == 0 && pipe(answer) == 0);
	const pid_t child = fork();
	if (child == 0) {
		close(ask[1]);
		// The child may not use the handle, and its end commits nothing.
		char ok = cuFileWrite(handle, mark.data(), mark.size(), 0, 0) == -1 && errno == EBADF &&
		          status_of([] { init(); }) == NEBULAIO_ERR_CLOSED;
		cuFileHandleDeregister(handle);
		EXPECT(write(answer[1], &ok, 1) == 1);
		EXPECT(read(ask[0], &ok, 1) == 0); // the parent has committed
		if (place->cuda)
			_exit(0); // CUDA does not survive fork
		std::exit(0);
	}
	char ok = 0;
	EXPECT(read(answer[0], &ok, 1) == 1 && ok == 1);
	cuFileHandleDeregister(handle); // while the child is there
	close(ask[1]);
	int status = 0;
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	std::exit(0);
}

} // namespace

int main(int argc, char **argv)
{
	if ((argc != 2 && argc != 4) || !std::getenv("NEBULAIO_ENDPOINT") || !std::getenv("SERVER_DATA"))
		fatal("usage: NEBULAIO_ENDPOINT=... SERVER_DATA=... handles DEVICE");
	const memory here = memory_of(argv[1]);
	place = &here;
	program = argv[0];
	device = argv[1];
	if (argc == 4)
		end(argv[2], argv[3]);
	server_of_tests all;
	server = &all;
	init();
	changes();
	queued();
	modes();
	two_writers();
	failures();
	closed_descriptor();
	others();
	reader();
	ends();
	nebulaio::GPUDirectShutdown();
	std::cout << "C++: writes to handles of objects on " << argv[1] << ", every byte right\n";
	return 0;
}
