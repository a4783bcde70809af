package main

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// splitsMax is the largest number of splits of one write, which limits its pauses.
const splitsMax = 4

// splitConnection splits each write into pieces, with pauses between some of them. Below TLS it splits
// records.
type splitConnection struct {
	net.Conn
	lock sync.Mutex
	rng  *rand.Rand
}

func (c *splitConnection) Write(part []byte) (int, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	sent := 0
	for range c.rng.IntN(splitsMax + 1) {
		if len(part)-sent < 2 {
			break
		}
		// Near the beginning, where framing is, or anywhere.
		size := 1 + c.rng.IntN(len(part)-sent-1)
		if c.rng.IntN(2) == 0 {
			size = 1 + size%min(16, len(part)-sent-1)
		}
		written, err := c.Conn.Write(part[sent : sent+size])
		sent += written
		if err != nil {
			return sent, err
		}
		if c.rng.IntN(2) == 0 {
			time.Sleep(time.Duration(c.rng.IntN(3000)) * time.Microsecond)
		}
	}
	written, err := c.Conn.Write(part[sent:])
	return sent + written, err
}

// lateHandshakeConnection delays the first bytes, which are those of the handshake.
type lateHandshakeConnection struct {
	net.Conn
	pause time.Duration
	once  sync.Once
}

func (c *lateHandshakeConnection) Write(part []byte) (int, error) {
	c.once.Do(func() { time.Sleep(c.pause) })
	return c.Conn.Write(part)
}

// chunker chooses the size of each write and the pause after it.
type chunker struct {
	rng  *rand.Rand
	slow bool
	// The sum of all pauses is limited.
	pausesLeft time.Duration
}

func newChunker(rng *rand.Rand, slow bool) *chunker {
	return &chunker{rng, slow, 500 * time.Millisecond}
}

func (c *chunker) size() int {
	if c.slow && c.rng.IntN(3) > 0 {
		return 1 + c.rng.IntN(700)
	}
	if c.rng.IntN(8) == 0 {
		return 1 + c.rng.IntN(64)
	}
	return 1 + c.rng.IntN(64<<10)
}

func (c *chunker) pause() time.Duration {
	if !c.slow || c.pausesLeft <= 0 || c.rng.IntN(3) > 0 {
		return 0
	}
	pause := time.Duration(c.rng.IntN(20)) * time.Millisecond
	if c.rng.IntN(40) == 0 {
		pause *= 10
	}
	c.pausesLeft -= pause
	return pause
}
