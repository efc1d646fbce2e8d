package s3

// combineCRC returns the CRC of a‖b from the CRCs of a and b and the length of b in bytes, for a reflected CRC of the
// given width (32 or 64) whose register starts and ends inverted, as all of S3's are. poly is in reflected form.
// Method: zlib's crc32_combine (M. Adler): crc(a‖b) = crc(a)·x^(8·len b) mod poly ⊕ crc(b).
func combineCRC(a, b uint64, lenB int64, width uint, poly uint64) uint64 {
	return mulMod(powMod(uint64(lenB)*8, width, poly), a, width, poly) ^ b
}

// mulMod multiplies two polynomials modulo poly; the highest bit is the coefficient of x^0.
func mulMod(a, b uint64, width uint, poly uint64) uint64 {
	var p uint64
	for m := uint64(1) << (width - 1); m != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ poly
		} else {
			b >>= 1
		}
	}
	return p
}

// powMod is x^n modulo poly.
func powMod(n uint64, width uint, poly uint64) uint64 {
	p := uint64(1) << (width - 1)  // x^0
	sq := uint64(1) << (width - 2) // x^1
	for ; n != 0; n >>= 1 {
		if n&1 != 0 {
			p = mulMod(sq, p, width, poly)
		}
		sq = mulMod(sq, sq, width, poly)
	}
	return p
}
