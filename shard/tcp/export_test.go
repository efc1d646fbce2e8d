package tcp

import (
	"objstore/shard"
)

// EncodeWrite returns a write as a client sends it: create frame, header of the data frame, data, commit frame.
func EncodeWrite(s shard.Spec, data []byte) [4][]byte {
	create := appendSpec(openFrame(nil), &s)
	sealFrame(create, 0, kindCreate, 0, 0)
	head := appendCRCs(openFrame(nil), shard.AppendCRCs(nil, s.Blob, s.Index, 0, data))
	sealFrame(head, 0, kindData, 0, len(data))
	commit := openFrame(nil)
	sealFrame(commit, 0, kindCommit, 0, 0)
	return [4][]byte{create, head, data, commit}
}

// EncodeAck returns an acknowledgement as a server sends it.
func EncodeAck(a shard.Ack) []byte {
	b := appendAck(openFrame(nil), a)
	sealFrame(b, 0, kindAck, 0, 0)
	return b
}
