;; Gives an address outside its memory.
;; want: AccessError: memory
(data (i32.const 0) "spec.x")
(data (i32.const 8) "kind")
(data (i32.const 16) "metadata")
(func $bad (drop (call $remap_ip (i32.const 0x10000) (i32.const 8) (i32.const 0) (i32.const 64))))
