# models/ to one C file that defines what core/src/model/sources.h declares.
#
#     cmake -DMODELS=DIR -DOUT=FILE -P embed.cmake
#
# Line breaks and indentation go, JSON strings cannot hold them, and so do notes, which nothing reads. A file that is not
# JSON stops the build.
cmake_minimum_required(VERSION 3.25)

set(bodies "")
set(array_count 0)

# Appends the bytes of a file to `bodies`; `initializer` becomes {"name", text, length, is_given}.
function(embed_file name path)
    file(READ "${path}" text)
    string(JSON kind ERROR_VARIABLE problem TYPE "${text}")
    if(problem)
        message(FATAL_ERROR "${path}: ${problem}")
    endif()
    string(REGEX REPLACE "[\r\n]+[ \t]*" "" text "${text}")
    string(REGEX REPLACE "\"note\": \"[^\"\\\\]*\"," "" text "${text}")
    string(HEX "${text}" hex)
    string(LENGTH "${hex}" length)
    math(EXPR length "${length} / 2")
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(APPEND bodies "static const unsigned char text_${array_count}[] = {${bytes}0};\n")
    set(bodies "${bodies}" PARENT_SCOPE)
    set(initializer "{\"${name}\", (const char *)text_${array_count}, ${length}, 0}" PARENT_SCOPE)
    math(EXPR array_count "${array_count} + 1")
    set(array_count ${array_count} PARENT_SCOPE)
endfunction()

# All .json files of the folders, each given as PREFIX=FOLDER, sorted by name, as a table.
function(embed_folder table)
    set(named "")
    foreach(folder IN LISTS ARGN)
        string(REGEX MATCH "^([^=]*)=(.*)$" _ "${folder}")
        set(prefix "${CMAKE_MATCH_1}")
        file(GLOB paths "${MODELS}/${CMAKE_MATCH_2}/*.json")
        foreach(path IN LISTS paths)
            get_filename_component(name "${path}" NAME_WLE)
            list(APPEND named "${prefix}${name}|${path}")
        endforeach()
    endforeach()
    # "|" sorts after letters and "-": a name comes after the longer names that begin with it, unless
    # it is made the smallest character for the comparison.
    list(TRANSFORM named REPLACE "[|]" "!|")
    list(SORT named COMPARE STRING)
    set(rows "")
    foreach(entry IN LISTS named)
        string(REGEX MATCH "^(.*)![|](.*)$" _ "${entry}")
        set(path "${CMAKE_MATCH_2}")
        embed_file("${CMAKE_MATCH_1}" "${path}")
        string(APPEND rows "    ${initializer},\n")
    endforeach()
    list(LENGTH named count)
    string(APPEND bodies "const tide_source ${table}_sources[] = {\n${rows}    {0, 0, 0, 0}};\n"
        "const uint32_t ${table}_source_count = ${count};\n")
    set(bodies "${bodies}" PARENT_SCOPE)
    set(array_count ${array_count} PARENT_SCOPE)
endfunction()

embed_folder(tide_architecture "=architectures" "library/=architectures/library")
embed_folder(tide_catalogue "=catalogue")
embed_folder(tide_recipe "=recipes")
embed_file("gpus" "${MODELS}/gpus.json")
string(APPEND bodies "const tide_source tide_gpu_source = ${initializer};\n")

# "model_type": {"llama": "LlamaModel"} of every architecture.
set(rows "")
set(row_count 0)
file(GLOB paths "${MODELS}/architectures/*.json")
list(SORT paths)
foreach(path IN LISTS paths)
    get_filename_component(name "${path}" NAME_WLE)
    file(READ "${path}" text)
    string(JSON kind ERROR_VARIABLE absent TYPE "${text}" model_type)
    if(absent)
        continue()
    endif()
    if(NOT kind STREQUAL "OBJECT")
        message(FATAL_ERROR "${path}: /model_type must be an object of model type to class name")
    endif()
    string(JSON count LENGTH "${text}" model_type)
    if(count EQUAL 0)
        continue()
    endif()
    math(EXPR last "${count} - 1")
    foreach(index RANGE ${last})
        string(JSON model_type MEMBER "${text}" model_type ${index})
        string(JSON class_name GET "${text}" model_type "${model_type}")
        string(APPEND rows "    {\"${model_type}\", \"${name}\", \"${class_name}\"},\n")
        math(EXPR row_count "${row_count} + 1")
    endforeach()
endforeach()
string(APPEND bodies "const tide_model_type tide_model_types[] = {\n${rows}    {0, 0, 0}};\n"
    "const uint32_t tide_model_type_count = ${row_count};\n")

file(WRITE "${OUT}" "/* Made from models/ by core/cmake/embed.cmake. */\n"
    "#include \"model/sources.h\"\n\n${bodies}")
