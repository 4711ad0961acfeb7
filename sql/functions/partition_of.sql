-- purpose: Return the partition of a key: the lowest byte of its MurmurHash3 (x86, 32 bits, seed 0), exactly as in Python.

create or replace function {schema}.partition_of(key text) returns smallint
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    -- The arithmetic uses bigint and is cut to 32 bits after every step. A constant above 2^31 is written as its negative
    -- equal modulo 2^32, because a product could otherwise exceed 2^63.
    bits  constant bigint := 4294967295;
    c1    constant bigint := -862048943;   -- 0xcc9e2d51
    c2    constant bigint := 461845907;    -- 0x1b873593
    bytes constant bytea  := convert_to(key, 'UTF8');
    size  constant int    := length(bytes);
    tail  constant int    := size & ~3;
    h bigint := 0;
    k bigint;
begin
    for i in 0 .. tail - 1 by 4 loop
        k := get_byte(bytes, i) + 256 * get_byte(bytes, i + 1) + 65536 * get_byte(bytes, i + 2)
             + 16777216::bigint * get_byte(bytes, i + 3);
        k := k * c1 & bits;
        k := ((k << 15) | (k >> 17)) & bits;
        h := h # (k * c2 & bits);
        h := ((h << 13) | (h >> 19)) & bits;
        h := h * 5 + 3864292196 & bits;    -- 0xe6546b64
    end loop;
    if size > tail then
        k := 0;
        for i in reverse size - 1 .. tail loop
            k := 256 * k + get_byte(bytes, i);
        end loop;
        k := k * c1 & bits;
        k := ((k << 15) | (k >> 17)) & bits;
        h := h # (k * c2 & bits);
    end if;
    h := h # size;
    h := (h # (h >> 16)) * -2048144789 & bits;   -- 0x85ebca6b
    h := (h # (h >> 13)) * -1028477387 & bits;   -- 0xc2b2ae35
    return (h # (h >> 16)) & 255;
end
$$;
