package main

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// cutsMax is how many times one write is cut at the most, which bounds its pauses.
const cutsMax = 4

// cutConnection sends what is written in pieces, with pauses between some of them. Under TLS it cuts
// records.
type cutConnection struct {
	net.Conn
	lock sync.Mutex
	dice *rand.Rand
}

func (c *cutConnection) Write(part []byte) (int, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	sent := 0
	for range c.dice.IntN(cutsMax + 1) {
		if len(part)-sent < 2 {
			break
		}
		// Near the beginning, where framing is, or anywhere.
		size := 1 + c.dice.IntN(len(part)-sent-1)
		if c.dice.IntN(2) == 0 {
			size = 1 + size%min(16, len(part)-sent-1)
		}
		written, err := c.Conn.Write(part[sent : sent+size])
		sent += written
		if err != nil {
			return sent, err
		}
		if c.dice.IntN(2) == 0 {
			time.Sleep(time.Duration(c.dice.IntN(3000)) * time.Microsecond)
		}
	}
	written, err := c.Conn.Write(part[sent:])
	return sent + written, err
}

// tardyConnection lets the client wait for the first bytes of an answer, which are those of the handshake.
type tardyConnection struct {
	net.Conn
	pause time.Duration
	once  sync.Once
}

func (c *tardyConnection) Write(part []byte) (int, error) {
	c.once.Do(func() { time.Sleep(c.pause) })
	return c.Conn.Write(part)
}

// chunker draws how much is written at a time, and how long the pause after it is.
type chunker struct {
	dice  *rand.Rand
	drips bool
	// Pauses are not added up for ever.
	pausesLeft time.Duration
}

func newChunker(dice *rand.Rand, drips bool) *chunker {
	return &chunker{dice, drips, 500 * time.Millisecond}
}

func (c *chunker) size() int {
	if c.drips && c.dice.IntN(3) > 0 {
		return 1 + c.dice.IntN(700)
	}
	if c.dice.IntN(8) == 0 {
		return 1 + c.dice.IntN(64)
	}
	return 1 + c.dice.IntN(64<<10)
}

func (c *chunker) pause() time.Duration {
	if !c.drips || c.pausesLeft <= 0 || c.dice.IntN(3) > 0 {
		return 0
	}
	pause := time.Duration(c.dice.IntN(20)) * time.Millisecond
	if c.dice.IntN(40) == 0 {
		pause *= 10
	}
	c.pausesLeft -= pause
	return pause
}
